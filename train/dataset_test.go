package train

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// writeData makes the files that the tests below name, and works there.
func writeData(t *testing.T) {
	t.Chdir(t.TempDir())
	lines := ""
	for i := range 30 {
		lines += fmt.Sprintf("{\"text\":\"line %d\",\"body\":\"b\"}\n", i)
	}
	for name, content := range map[string]string{
		"lines.jsonl": lines, "one.txt": strings.Repeat("a line\n", 20), "other.txt": "other", "other2.txt": "other", "word.txt": "word",
	} {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenDataset(t *testing.T) {
	writeData(t)
	for _, test := range []struct {
		overrides []string
		train     []string // name: documents
		heldOut   string
	}{
		{[]string{"training.dataset=moby_dick"}, []string{"moby_dick/train: 124"}, "moby_dick/held_out: 14"},
		{[]string{"training.dataset=lines.jsonl"}, []string{"lines.jsonl/train: 27"}, "lines.jsonl/held_out: 3"},
		{[]string{"training.dataset=one.txt"}, []string{"one.txt/train: 1"}, "one.txt/held_out: 1"},
		{[]string{"training.dataset=word.txt"}, []string{"word.txt: 1"}, ""},
		// One after the other: the tenth of all is held out. Files stay one source.
		{[]string{"training.dataset=other.txt,lines.jsonl"}, []string{"other.txt,lines.jsonl/train: 27"}, "other.txt,lines.jsonl/held_out: 4"},
		{[]string{"training.dataset=moby_dick,other.txt,lines.jsonl"}, []string{"moby_dick,other.txt,lines.jsonl/train: 152"}, "moby_dick,other.txt,lines.jsonl/held_out: 17"},
		// Mixed: the tenth of each.
		{[]string{"training.dataset=moby_dick,lines.jsonl,word.txt", "training.dataset_weights=3,1,0.5"},
			[]string{"moby_dick/train: 124", "lines.jsonl/train: 27", "word.txt: 1"}, "moby_dick/held_out,lines.jsonl/held_out: 17"},
		// Text of its own to measure: nothing is held out.
		{[]string{"training.dataset=lines.jsonl", "validation.dataset=one.txt,moby_dick"}, []string{"lines.jsonl: 30"}, "one.txt,moby_dick: 139"},
		{[]string{"training.dataset=lines.jsonl,moby_dick", "training.dataset_weights=1,1", "validation.dataset=other.txt,other2.txt"},
			[]string{"lines.jsonl: 30", "moby_dick: 138"}, "other.txt,other2.txt: 2"},
	} {
		c := DefaultConfig()
		for _, o := range test.overrides {
			if err := c.Override(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		d, err := openDataset(context.Background(), c, nil)
		if err != nil {
			t.Errorf("%v: %v", test.overrides, err)
			continue
		}
		var trained []string
		for i, p := range d.train {
			trained = append(trained, fmt.Sprintf("%s: %d", p.Source.Name(), p.Source.Len()))
			if len(c.Training.DatasetWeights) > 0 && p.Weight != c.Training.DatasetWeights[i] {
				t.Errorf("%v: weight %v", test.overrides, p.Weight)
			}
		}
		heldOut := ""
		if d.heldOut != nil {
			heldOut = fmt.Sprintf("%s: %d", d.heldOut.Name(), d.heldOut.Len())
		}
		if fmt.Sprint(trained) != fmt.Sprint(test.train) || heldOut != test.heldOut {
			t.Errorf("%v:\ntrains on %v, holds out %s\nwant      %v,           %s", test.overrides, trained, heldOut, test.train, test.heldOut)
		}
	}
}

func TestOpenDatasetErrors(t *testing.T) {
	writeData(t)
	for _, test := range []struct {
		overrides []string
		want      string
	}{
		{[]string{"training.dataset=lines.jsonl", "training.text_field=content"},
			`train: config: training.dataset: data: lines.jsonl:1: not a document: the object has no field "content", it has "text", "body"; name the field that holds the text (training.text_field is "content")`},
		{[]string{"training.dataset=moby_dick", "validation.dataset=gone.txt"},
			`train: config: validation.dataset: data: gone.txt: no such file or directory: no such file, and the built-in datasets are "moby_dick"`},
		{[]string{"training.dataset=a.jsonl.gz"}, "train: config: training.dataset: data: a.jsonl.gz: no such file"},
	} {
		c := DefaultConfig()
		for _, o := range test.overrides {
			if err := c.Override(o); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := openDataset(context.Background(), c, nil); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}
