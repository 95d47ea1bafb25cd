package tensorboard

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Value is one thing that is shown under a tag.
type Value struct {
	// Tag names a chart; what stands before its first slash is the chart's group.
	Tag string
	// Scalar is the point of a curve. TensorBoard keeps float32.
	Scalar float64
	// Histogram is shown in place of Scalar if it is not nil.
	Histogram *Histogram
}

// Histogram counts numbers by buckets.
type Histogram struct {
	Min, Max, Num, Sum, SumSquares float64
	// Limits are the upper ends of the buckets, ascending; Counts what is in them.
	Limits, Counts []float64
}

// Bars is the histogram whose bucket i stands at i and is counts[i] high.
func Bars(counts []float64) *Histogram {
	h := &Histogram{Min: -0.5, Max: float64(len(counts)) - 0.5, Counts: counts}
	for i, n := range counts {
		x := float64(i)
		h.Limits = append(h.Limits, x+0.5)
		h.Num += n
		h.Sum += n * x
		h.SumSquares += n * x * x
	}
	return h
}

// fileVersion is what the first event of a file says. Since version 2 it is the start
// of a session, and not a step that goes back, that makes readers forget steps.
const fileVersion = "brain.Event:2"

// Fields of the messages Event, SessionLog, Summary, Summary.Value and HistogramProto.
const (
	eventWallTime, eventStep, eventFileVersion, eventSummary, eventSessionLog protowire.Number = 1, 2, 3, 5, 7

	sessionStatus protowire.Number = 1
	sessionStart                   = 1 // SessionLog.START

	summaryValue                           protowire.Number = 1
	valueTag, valueScalar, valueHistogram  protowire.Number = 1, 2, 5
	histogramMin, histogramMax             protowire.Number = 1, 2
	histogramNum, histogramSum             protowire.Number = 3, 4
	histogramSumSquares                    protowire.Number = 5
	histogramLimits, histogramBucketCounts protowire.Number = 6, 7
)

// event is the head of every Event. Protocol buffers leave out zeros.
func event(wallTime float64, step int64) []byte {
	var b []byte
	b = appendDouble(b, eventWallTime, wallTime)
	if step != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, eventStep, protowire.VarintType), uint64(step))
	}
	return b
}

func versionEvent(wallTime float64) []byte {
	return appendBytes(event(wallTime, 0), eventFileVersion, []byte(fileVersion))
}

func sessionEvent(wallTime float64, step int64) []byte {
	log := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
	return appendBytes(event(wallTime, step), eventSessionLog, log)
}

func summaryEvent(wallTime float64, step int64, values []Value) []byte {
	var summary []byte
	for _, v := range values {
		summary = appendBytes(summary, summaryValue, v.encode())
	}
	return appendBytes(event(wallTime, step), eventSummary, summary)
}

func (v Value) encode() []byte {
	b := appendBytes(nil, valueTag, []byte(v.Tag))
	if v.Histogram != nil {
		return appendBytes(b, valueHistogram, v.Histogram.encode())
	}
	// Part of a oneof: a zero is written too.
	b = protowire.AppendTag(b, valueScalar, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, math.Float32bits(float32(v.Scalar)))
}

func (h *Histogram) encode() []byte {
	var b []byte
	b = appendDouble(b, histogramMin, h.Min)
	b = appendDouble(b, histogramMax, h.Max)
	b = appendDouble(b, histogramNum, h.Num)
	b = appendDouble(b, histogramSum, h.Sum)
	b = appendDouble(b, histogramSumSquares, h.SumSquares)
	b = appendBytes(b, histogramLimits, packed(h.Limits))
	return appendBytes(b, histogramBucketCounts, packed(h.Counts))
}

func appendDouble(b []byte, field protowire.Number, x float64) []byte {
	if math.Float64bits(x) == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(x))
}

func appendBytes(b []byte, field protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), data)
}

func packed(list []float64) []byte {
	var b []byte
	for _, x := range list {
		b = protowire.AppendFixed64(b, math.Float64bits(x))
	}
	return b
}
