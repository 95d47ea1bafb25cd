package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lethe-go/lethe/train"
)

// parseCluster reads what a rank of a cluster has, such as
// memory=80GiB,flops=400T,memory_bandwidth=3TB,link=50GB,latency=10us. What is left out has
// no limit.
func parseCluster(text string) (train.Cluster, error) {
	var k train.Cluster
	var seen []string
	for entry := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || slices.Contains(seen, key) {
			return k, fmt.Errorf("%q: want key=value, each key once, such as memory=80GiB,flops=400T,memory_bandwidth=3TB,link=50GB,latency=10us", entry)
		}
		seen = append(seen, key)
		var x float64
		var err error
		switch key {
		case "memory":
			x, err = parseQuantity(value)
			k.Memory = int64(x)
		case "flops":
			k.FLOPs, err = parseQuantity(value)
		case "memory_bandwidth":
			k.MemoryBandwidth, err = parseQuantity(value)
		case "link":
			k.Link.Bandwidth, err = parseQuantity(value)
		case "latency":
			if k.Link.Latency, err = time.ParseDuration(value); err == nil && k.Link.Latency < 0 {
				err = fmt.Errorf("%q: want a duration of 0 or more", value)
			}
		default:
			err = fmt.Errorf("unknown: have memory, flops, memory_bandwidth, link, latency")
		}
		if err != nil {
			return k, fmt.Errorf("%s: %w", key, err)
		}
	}
	return k, nil
}

// quantityUnits are the suffixes of numbers; bytes, FLOPs and both of them a second have the
// same.
var quantityUnits = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// parseQuantity reads a number above 0 with one of the suffixes, or none.
func parseQuantity(text string) (float64, error) {
	number, factor := text, 1.0
	for _, u := range quantityUnits {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, factor = n, u.factor
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if x *= factor; err != nil || !(x > 0) || x >= math.MaxInt64 {
		return 0, fmt.Errorf("%q: want a number above 0 with a unit such as GiB, GB or T", text)
	}
	return x, nil
}
