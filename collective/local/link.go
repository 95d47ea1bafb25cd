package local

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/internal/quantity"
)

// Link is what each rank is connected to the others with, for experiments. The zero value
// is memory that the ranks share: nothing is modelled.
type Link struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second in each direction; 0 has no limit
}

// ParseBandwidth reads bytes a second, such as 1.5GB/s, 100MB/s or 50kB/s.
func ParseBandwidth(text string) (float64, error) {
	number, unit, ok := quantity.Cut(text, bandwidthUnits)
	x, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(x > 0) {
		return 0, fmt.Errorf("%q is no bandwidth: want such as 1.5GB/s, 100MB/s, 50kB/s", text)
	}
	return x * unit, nil
}

var bandwidthUnits = []quantity.Unit{{Name: "GB/s", Factor: 1e9}, {Name: "MB/s", Factor: 1e6}, {Name: "kB/s", Factor: 1e3}}

// Transfer is how long a rank's collective takes from the moment at which all ranks have
// come:
//
//	rounds · Latency + max(sent, received) / Bandwidth
//
// where sent and received are bytes from and to other ranks: each rank has a full-duplex
// link of its own to a switch without contention, and rounds are [collective.Kind.Rounds].
// The rank sleeps for that long on the lane of the group, less what the copy took, and leaves
// no earlier than the last rank.
func (l Link) Transfer(k collective.Kind, sent, received int64) time.Duration {
	d := time.Duration(k.Rounds()) * l.Latency
	if l.Bandwidth > 0 {
		d += time.Duration(float64(max(sent, received)) / l.Bandwidth * float64(time.Second))
	}
	return d
}

// arrival is when the modelled link has brought all, the zero Time without a link.
func (g *group) arrival(c *call.Call) time.Time {
	if g.Link == (Link{}) {
		return time.Time{}
	}
	sent, received := c.Traffic(g.rank, g.Size())
	return time.Now().Add(g.Link.Transfer(c.Kind, sent, received))
}

// await sleeps until then. What ends the collective ends the sleep.
func (g *group) await(ctx context.Context, arrival time.Time) {
	d := time.Until(arrival)
	if arrival.IsZero() || d <= 0 {
		return
	}
	if g.timer == nil {
		g.timer = time.NewTimer(d)
	} else {
		g.timer.Reset(d)
	}
	defer g.timer.Stop()
	select {
	case <-g.timer.C:
	case <-g.stop:
	case <-ctx.Done():
	}
}
