package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/train"
)

func TestParseCluster(t *testing.T) {
	got, err := parseCluster("memory=80GiB,host_memory=128GiB,flops=400T,memory_bandwidth=3.35TB,link=50GB,latency=10us")
	want := train.Cluster{Memory: 80 << 30, HostMemory: 128 << 30, FLOPs: 4e14, MemoryBandwidth: 3.35e12, Link: local.Link{Latency: 10 * time.Microsecond, Bandwidth: 5e10}}
	if err != nil || got != want {
		t.Errorf("%+v, %v: want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                     "want key=value",
		"memory":               "want key=value",
		"memory=1GiB,memory=2": "each key once",
		"memory=-1GiB":         "memory: \"-1GiB\": want a number above 0",
		"memory=1e30":          "want a number above 0",
		"flops=NaN":            "want a number above 0",
		"latency=-1s":          "want a duration of 0 or more",
		"latency=fast":         "latency: ",
		"speed=3":              "speed: unknown: have memory, host_memory, flops",
	} {
		if _, err := parseCluster(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseCluster(f *testing.F) {
	f.Add("memory=80GiB,flops=400T,memory_bandwidth=3.35TB,link=50GB,latency=10us")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseCluster(text)
		if err == nil && (k.Memory < 0 || k.HostMemory < 0 || !(k.FLOPs >= 0) || !(k.MemoryBandwidth >= 0) || !(k.Link.Bandwidth >= 0) || k.Link.Latency < 0) {
			t.Errorf("%q is %+v", text, k)
		}
	})
}

func TestClusterTakesNoCostTable(t *testing.T) {
	code, _, stderr := lethe("plan", "--config", "../../configs/llama3_debug.toml", "--cluster", "memory=1GiB", "--costs", "costs.json")
	if code != exitUsage || !strings.Contains(stderr, "--costs are of a machine that is there") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
