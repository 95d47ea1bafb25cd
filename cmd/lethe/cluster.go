package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lethe-go/lethe/internal/quantity"
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
		case "host_memory":
			x, err = parseQuantity(value)
			k.HostMemory = int64(x)
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
			err = fmt.Errorf("unknown: have memory, host_memory, flops, memory_bandwidth, link, latency")
		}
		if err != nil {
			return k, fmt.Errorf("%s: %w", key, err)
		}
	}
	return k, nil
}

// quantityUnits are those of bytes and FLOPs, and of both a second.
var quantityUnits = append(slices.Clone(quantity.Bytes), []quantity.Unit{{Name: "k", Factor: 1e3}, {Name: "M", Factor: 1e6}, {Name: "G", Factor: 1e9}, {Name: "T", Factor: 1e12}, {Name: "P", Factor: 1e15}}...)

// parseQuantity reads a number above 0 with one of the suffixes, or none.
func parseQuantity(text string) (float64, error) {
	number, factor, _ := quantity.Cut(text, quantityUnits)
	x, err := strconv.ParseFloat(number, 64)
	if x *= factor; err != nil || !(x > 0) || x >= math.MaxInt64 {
		return 0, fmt.Errorf("%q: want a number above 0 with a unit such as GiB, GB or T", text)
	}
	return x, nil
}
