package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Report says how two runs differ, bit for bit. NaN equals NaN.
type Report struct {
	RunA, RunB string // dump folders

	// Steps counts the steps that both runs report.
	Steps int
	// OnlyStepsA and OnlyStepsB are the steps that one run reports.
	OnlyStepsA, OnlyStepsB []int
	// FirstStep is the first step whose loss or grad_norm differ; nil if none.
	FirstStep *StepDifference

	// StateStep is the newest step of which both runs have a state; -1 if there
	// is none.
	StateStep int
	// StatesA and StatesB count the states of each run.
	StatesA, StatesB int
	// Tensors counts the tensors that both states hold.
	Tensors int
	// OnlyTensorsA and OnlyTensorsB are the tensors that one state holds.
	OnlyTensorsA, OnlyTensorsB []string
	// FirstTensor is the first tensor, by name, that differs; nil if none.
	FirstTensor *TensorDifference
	// KernelLevelA and KernelLevelB are the instruction sets of the two states:
	// different ones round differently.
	KernelLevelA, KernelLevelB string
}

// StepDifference is a number of metrics.jsonl that differs.
type StepDifference struct {
	Step int
	Key  string // "loss" or "grad_norm"
	A, B float64
}

// TensorDifference is a tensor that differs.
type TensorDifference struct {
	Name string
	// SpecA and SpecB are dtype and shape, such as "float32[4 2]". If they
	// differ, nothing below is set.
	SpecA, SpecB string
	// Elements that differ in their bits, out of how many.
	Different, Elements int
	// MaxAbs is the largest absolute difference; NaN if one side of an element
	// is NaN, or for a dtype without a value. Index is where it is, A and B are
	// the values there.
	MaxAbs float64
	Index  []int
	A, B   float64
}

// Compare compares two runs by their dump folders: loss and grad_norm of every
// step in metrics.jsonl, and every tensor of the newest state that both have.
// It fails if a run has no metrics, or if something does not read.
func Compare(runA, runB string) (Report, error) {
	r := Report{RunA: runA, RunB: runB, StateStep: -1}
	if err := r.compareMetrics(); err != nil {
		return Report{}, err
	}
	if err := r.compareStates(); err != nil {
		return Report{}, err
	}
	return r, nil
}

// Equal reports whether nothing differs: the same steps with the same numbers,
// and, unless neither run has a state, equal states of a common step.
func (r Report) Equal() bool {
	steps := r.FirstStep == nil && len(r.OnlyStepsA) == 0 && len(r.OnlyStepsB) == 0
	states := r.StatesA == 0 && r.StatesB == 0 ||
		r.StateStep >= 0 && r.FirstTensor == nil && len(r.OnlyTensorsA) == 0 && len(r.OnlyTensorsB) == 0
	return steps && states
}

// String is the report in a few short lines, the first of which is the verdict.
func (r Report) String() string {
	var b strings.Builder
	if r.Equal() {
		b.WriteString("equal: ")
	} else {
		b.WriteString("different: ")
	}
	fmt.Fprintf(&b, "%s and %s, bit for bit over %d steps", r.RunA, r.RunB, r.Steps)
	if r.StateStep >= 0 {
		fmt.Fprintf(&b, " and %d tensors of the state of step %d", r.Tensors, r.StateStep)
	}
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n  "+format, args...) }
	if d := r.FirstStep; d != nil {
		line("first step that differs: %d: %s %v and %v", d.Step, d.Key, d.A, d.B)
	}
	if len(r.OnlyStepsA) > 0 {
		line("steps only in %s: %s", r.RunA, abbreviate(r.OnlyStepsA))
	}
	if len(r.OnlyStepsB) > 0 {
		line("steps only in %s: %s", r.RunB, abbreviate(r.OnlyStepsB))
	}
	switch {
	case r.StatesA == 0 && r.StatesB == 0:
		line("no state in either run: parameters are not compared")
	case r.StateStep < 0:
		line("no state of a common step: %d and %d states", r.StatesA, r.StatesB)
	}
	if d := r.FirstTensor; d != nil {
		line("first tensor that differs: %s", d)
	}
	if len(r.OnlyTensorsA) > 0 {
		line("tensors only in %s: %s", r.RunA, abbreviate(r.OnlyTensorsA))
	}
	if len(r.OnlyTensorsB) > 0 {
		line("tensors only in %s: %s", r.RunB, abbreviate(r.OnlyTensorsB))
	}
	if r.KernelLevelA != r.KernelLevelB {
		line("the kernel levels differ: %s and %s", r.KernelLevelA, r.KernelLevelB)
	}
	return b.String()
}

func (d TensorDifference) String() string {
	if d.SpecA != d.SpecB {
		return fmt.Sprintf("%s: %s and %s", d.Name, d.SpecA, d.SpecB)
	}
	return fmt.Sprintf("%s: %d of %d elements, by up to %v at %v: %v and %v", d.Name, d.Different, d.Elements, d.MaxAbs, d.Index, d.A, d.B)
}

// abbreviate lists the first few of a list.
func abbreviate[T any](list []T) string {
	const few = 5
	var b strings.Builder
	for i, x := range list {
		if i == few {
			fmt.Fprintf(&b, " and %d more", len(list)-few)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}

func (r *Report) compareMetrics() error {
	a, err := runMetrics(r.RunA)
	if err != nil {
		return err
	}
	b, err := runMetrics(r.RunB)
	if err != nil {
		return err
	}
	// Both are in order of steps.
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Step < b[0].Step:
			r.OnlyStepsA = append(r.OnlyStepsA, a[0].Step)
			a = a[1:]
		case len(a) == 0 || b[0].Step < a[0].Step:
			r.OnlyStepsB = append(r.OnlyStepsB, b[0].Step)
			b = b[1:]
		default:
			r.compareStep(a[0], b[0])
			a, b = a[1:], b[1:]
		}
	}
	return nil
}

func runMetrics(run string) ([]Metrics, error) {
	list, err := ReadMetrics(filepath.Join(run, MetricsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("train: compare: %s: no %s; give the job.dump_folder of a run", run, MetricsFile)
	}
	return list, err
}

func (r *Report) compareStep(a, b Metrics) {
	r.Steps++
	if r.FirstStep != nil {
		return
	}
	if !sameBits(float64(a.Loss), float64(b.Loss)) {
		r.FirstStep = &StepDifference{a.Step, "loss", float64(a.Loss), float64(b.Loss)}
	} else if !sameBits(float64(a.GradNorm), float64(b.GradNorm)) {
		r.FirstStep = &StepDifference{a.Step, "grad_norm", float64(a.GradNorm), float64(b.GradNorm)}
	}
}
