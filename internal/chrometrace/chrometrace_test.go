package chrometrace

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	slice := Slice(1, 2, `layers.0 "x"`, "forward", 1500*time.Nanosecond, 2*time.Millisecond)
	slice.Args = map[string]any{"flops": 2.5}
	trace := Trace{Unit: "ms", Other: map[string]any{"step": 3.0}}
	trace.Events = append(append(ProcessName(1, 2, "rank 0"), ThreadName(1, 2, "compute")...), slice,
		Event{Name: "wait", Phase: FlowEnd, Process: 1, Thread: 2, Time: 7, ID: 1, Binding: "e"})
	var text strings.Builder
	if err := trace.Write(&text); err != nil {
		t.Fatal(err)
	}
	want := `{"name":"layers.0 \"x\"","cat":"forward","ph":"X","pid":1,"tid":2,"ts":1.500,"dur":1998.500,"args":{"flops":2.5}}`
	if !strings.Contains(text.String(), "\n"+want+",\n") {
		t.Errorf("no line %s in\n%s", want, text.String())
	}
	var back Trace
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil {
		t.Fatal(err)
	}
	if last := back.Events[5]; last.Time != 7 || back.Events[4].Args["flops"] != 2.5 || !reflect.DeepEqual(back.Other, trace.Other) || back.Unit != "ms" {
		t.Errorf("%+v", back)
	}
}

func TestWriteRefusesWhatJSONCannotSay(t *testing.T) {
	trace := Trace{Events: []Event{{Name: "x", Args: map[string]any{"flops": math.NaN()}}}}
	if err := trace.Write(&strings.Builder{}); err == nil || !strings.Contains(err.Error(), "event 0, x") {
		t.Errorf("error %v", err)
	}
}
