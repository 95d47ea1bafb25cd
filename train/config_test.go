package train_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/train"
)

func TestParseConfig(t *testing.T) {
	c, err := train.ParseConfig("x.toml", []byte(`
[training]
dataset = "a.txt"
steps = 1_000
[optimizer]
lr = 1
[lr_scheduler]
decay_ratio = 0.8
[activation_checkpoint]
save = ["attention", "x"]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := train.DefaultConfig()
	want.Training.Dataset = train.StringList{"a.txt"}
	want.Training.Steps = 1000
	want.Optimizer.LR = 1
	ratio := 0.8
	want.LRScheduler.DecayRatio = &ratio
	want.ActivationCheckpoint.Save = train.StringList{"attention", "x"}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"[training]\nstep = 3", "train: config x.toml:2:1: unknown key training.step; did you mean training.steps?"},
		{"[training]\n  Steps = 3", "x.toml:2:3: unknown key training.Steps; did you mean training.steps?"},
		{"[training]\nwarmup_steps = 3", "x.toml:2:1: unknown key training.warmup_steps; did you mean lr_scheduler.warmup_steps?"},
		{"[optimizer]\namsgrad = true", "x.toml:2:1: unknown key optimizer.amsgrad; [optimizer] has name, lr, beta1, beta2, eps, weight_decay"},
		{"[[optimizer.groups]]\npatern = \"x\"", "x.toml:2:1: unknown key optimizer.groups.patern; did you mean optimizer.groups.pattern?"},
		{"[[optimizer.groups]]\nnesterov = true", "x.toml:2:1: unknown key optimizer.groups.nesterov; did you mean optimizer.nesterov?"},
		{"[[optimizer.groups]]\nx = 1", "x.toml:2:1: unknown key optimizer.groups.x; [optimizer.groups] has pattern, name, lr, beta1"},
		{"[[optimizer.groups]]\nLR = 1", "x.toml:2:1: unknown key optimizer.groups.LR"},
		{"[[optimizer.groups]]\nlr = true", "x.toml:2:6: optimizer.groups.lr: cannot decode TOML boolean; write a number"},
		{"[[optimizer.group]]\npattern = \"x\"", "x.toml:1:3: unknown section [optimizer.group]; did you mean [[optimizer.groups]]?"},
		{"[optimizer]\ngroups = [{pattern = \"x\", lrr = 1}]", "x.toml:2:27: unknown key optimizer.groups.lrr; did you mean optimizer.groups.lr?"},
		{"[optimizer]\ngroups = [3]", "x.toml:2:"},
		{"[optimizer]\ngroups = {pattern = \"x\"}", "x.toml:2:"},
		{"[optimizer.groups]\npattern = \"x\"", "x.toml:1:2: optimizer.groups is a list of tables; write [[optimizer.groups]]"},
		{"[optimizer]\ngroups.pattern = \"x\"", "x.toml:2:1: optimizer.groups is a list of tables; write [[optimizer.groups]]"},
		{"[optimizer]\ngroups = \"x\"", "x.toml:2:10: optimizer.groups: cannot decode TOML string; write "},
		{"[trainign]\nsteps = 3\nlr = 2", "x.toml:1:2: unknown section [trainign]; did you mean [training]?"},
		{"[network]\nx = 1", "x.toml:1:2: unknown section [network]; the sections are job, model"},
		{"steps = 3", "x.toml:1:1: unknown key steps; did you mean training.steps?"},
		{"training.lr = 3", "x.toml:1:1: unknown key training.lr; did you mean optimizer.lr?"},
		{"optimizer = {lr = 1, beta3 = 0.9}", "x.toml:1:22: unknown key optimizer.beta3; did you mean optimizer.beta1?"},
		{"[optimizer.lr]\nx = 1", "x.toml:1:"},
		{"[[training]]\nsteps = 1", "x.toml:1:"},
		{"training = 3", "x.toml:1:"},
		{"[training]\nsteps = 1.5", "x.toml:2:9: training.steps: cannot decode TOML float; write a whole number"},
		{"[training]\nsteps = \"1\"", "x.toml:2:9: training.steps: cannot decode TOML string; write a whole"},
		{"[training]\nsteps = 99999999999999999999", "x.toml:2:9: "},
		{"[training]\ndataset = 3", "x.toml:2:1: training.dataset: cannot decode TOML integer; write a string or a list"},
		{"[training]\nsteps = 1\nsteps = 2", "x.toml:3:"},
		{"[training\n", "x.toml:1:"},
		{"\"training.steps\" = 3", "x.toml:1:1: unknown key training.steps"},
	} {
		_, err := train.ParseConfig("x.toml", []byte(test.text))
		if err == nil {
			t.Errorf("%q: no error", test.text)
		} else if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %s\nwant %s", test.text, err, test.want)
		}
	}
	_, err := train.ParseConfig("x.toml", []byte("[training]\nstep = 3\n[optimiser]\nlr = 1\n[metrics]\nlog = 3"))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 3 {
		t.Errorf("want every unknown key reported: %s", err)
	}
}

func TestOverride(t *testing.T) {
	c := train.DefaultConfig()
	for _, arg := range []string{
		"--training.steps=2_0",
		"training.seed=7",
		"--optimizer.lr=3e-4",
		"--state.enable=false",
		"--activation_checkpoint.mode=none",
		"--training.dataset=a.txt,b c.txt",
		`--activation_checkpoint.save=["x,y", 'z']`,
		`--job.dump_folder="out=1"`,
		"--lr_scheduler.decay_ratio=0.5",
		"--training.dataset_weights=[3, 0.5]",
		"--activation_checkpoint.memory_budget=0.5GiB",
	} {
		if err := c.Override(arg); err != nil {
			t.Error(err)
		}
	}
	ratio := 0.5
	want := train.DefaultConfig()
	want.Training.Steps, want.Training.Seed, want.Optimizer.LR = 20, 7, 3e-4
	want.State.Enable = false
	want.ActivationCheckpoint.Mode = "none"
	want.ActivationCheckpoint.Save = train.StringList{"x,y", "z"}
	want.Training.Dataset = train.StringList{"a.txt", "b c.txt"}
	want.Training.DatasetWeights = train.NumberList{3, 0.5}
	want.ActivationCheckpoint.MemoryBudget = train.MemoryBudget{Bytes: 512 << 20}
	want.Job.DumpFolder = "out=1"
	want.LRScheduler.DecayRatio = &ratio
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
	if err := c.Override("--lr_scheduler.decay_ratio=none"); err != nil || c.LRScheduler.DecayRatio != nil {
		t.Errorf("none: %v, %v", c.LRScheduler.DecayRatio, err)
	}
}

func TestOverrideErrors(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--training.step=3", "train: override --training.step: unknown key training.step; did you mean training.steps?"},
		{"--steps=3", "unknown key steps; did you mean training.steps?"},
		{"--state.enable", "no value; write --state.enable=VALUE"},
		{"--state.enable=yes", "--state.enable=yes: not a boolean; write true or false"},
		{"--training.steps=1.5", "--training.steps=1.5: not a number of this type; write a whole number, such as 20"},
		{"--training.steps=1__0", "not a number"},
		{"--training.steps=99999999999999999999", "out of range"},
		{"--training.steps=", "not a number"},
		{"--activation_checkpoint.memory_budget=512", `a number of bytes needs a unit; write bytes, such as "512MiB", or a fraction of memory, such as 0.5`},
		{"--optimizer.lr=0x1p4", "not a decimal number"},
		{"--optimizer.lr=1_e4", "not a number"},
		{`--training.dataset=["a"`, "not a TOML array of strings"},
		{`--training.dataset_weights=[1`, "not a TOML array of numbers; write a list of numbers, such as [3, 1]"},
		{`--training.dataset_weights=1,two`, "not a number"},
		{`--job.dump_folder="a`, "quotes do not match"},
		{"--job.dump_folder=\xff", "not UTF-8"},
		{"--=3", "unknown"},
		{"--training=3", "unknown"},
		{"--optimizer.groups=[]", "--optimizer.groups: tables of a list cannot be set one by one; write them in the file"},
		{"--optimizer.groups.lr=1", "--optimizer.groups.lr: tables of a list cannot be set one by one; write them in the file"},
	} {
		c := train.DefaultConfig()
		err := c.Override(test.arg)
		if err == nil {
			t.Errorf("%s: no error", test.arg)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s:\n got %s\nwant %s", test.arg, err, test.want)
		}
		if !reflect.DeepEqual(c, train.DefaultConfig()) {
			t.Errorf("%s: the config changed although the override failed", test.arg)
		}
	}
}

func TestValidate(t *testing.T) {
	valid := train.DefaultConfig()
	valid.Training.Dataset = train.StringList{"a.txt"}
	if err := valid.Validate(); err != nil {
		t.Errorf("defaults with a dataset: %v", err)
	}
	for _, test := range []struct{ arg, want string }{
		{"--training.dataset=", "train: config: training.dataset: must not be empty: []; name a built-in dataset"},
		{"--training.dataset_weights=1,2", "train: config: training.dataset_weights: must be as many as training.dataset has entries, 1: 2; give each entry a weight, or none to any"},
		{"--training.dataset_weights=-1", "training.dataset_weights: must be positive and finite: -1; leave out what shall not be read"},
		{"--training.packing=best_fit", `training.packing: unknown name: "best_fit"; known are "concatenate", "first_fit"`},
		{"--training.shuffle_window=-1", "training.shuffle_window: must be at least 0: -1; set 0 to shuffle all documents among each other"},
		{"--training.prefetch=-1", "training.prefetch: must be at least 0: -1; set 0 to prepare nothing in the background"},
		{"--training.text_field=", "training.text_field: must not be empty"},
		{"--training.seq_len=0", "training.seq_len: must be at least 1: 0; "},
		{"--training.seq_len=2000000000", "a microbatch must have at most 2147483647 tokens: 2000000000 × local_batch_size 8; lower"},
		{"--training.local_batch_size=-1", "training.local_batch_size: must be at least 1: -1; "},
		{"--training.global_batch_size=20", "must be a multiple of training.local_batch_size 8: 20; set 16 or 24"},
		{"--training.global_batch_size=4", "must be a multiple of training.local_batch_size 8: 4; set 8"},
		{"--training.global_batch_size=-8", "must not be negative: -8; set 0"},
		{"--training.steps=0", "training.steps: must be at least 1: 0; "},
		{"--training.max_norm=-1", "training.max_norm: must be 0 or more and finite: -1; set 0"},
		{"--training.max_norm=nan", "training.max_norm: must be 0 or more and finite: NaN; set 0"},
		{"--training.dtype=float23", `training.dtype: unknown name: "float23"; known are "float32", "float64"; did you mean "float32"?`},
		{"--training.threads=-1", "training.threads: must be at least 0"},
		{"--training.seed=-1", "training.seed: must not be negative"},
		{"--optimizer.name=adamw", `optimizer.name: unknown name: "adamw"; known are "AdamW", "Adam", "SGD", "Muon"`},
		{"--optimizer.lr=0", "optimizer.lr: must be positive and finite: 0"},
		{"--optimizer.lr=inf", "optimizer.lr: must be positive and finite: +Inf"},
		{"--optimizer.beta1=1", "optimizer.beta1: must be within [0, 1): 1"},
		{"--optimizer.beta2=-0.1", "optimizer.beta2: must be within [0, 1): -0.1"},
		{"--optimizer.eps=0", "optimizer.eps: must be positive"},
		{"--optimizer.momentum=1", "optimizer.momentum: must be within [0, 1): 1"},
		{"--optimizer.muon_adjust_lr=orig", `optimizer.muon_adjust_lr: unknown name: "orig"; known are "match_rms_adamw", "original"`},
		{"--optimizer.ema_decay=1", "optimizer.ema_decay: must be within [0, 1): 1"},
		{"--lr_scheduler.warmup_steps=-1", "lr_scheduler.warmup_steps: must be at least 0"},
		{"--lr_scheduler.decay_ratio=1.1", "lr_scheduler.decay_ratio: must be within [0, 1]: 1.1"},
		{"--lr_scheduler.decay_type=cos", `lr_scheduler.decay_type: unknown name: "cos"; known are "linear", "sqrt", "cosine"`},
		{"--lr_scheduler.min_lr_factor=nan", "lr_scheduler.min_lr_factor: must be within [0, 1]: NaN"},
		{"--activation_checkpoint.mode=budge", `activation_checkpoint.mode: unknown name: "budge"; known are "none", "full", "selective", "budget"; did you mean "budget"?`},
		{"--activation_checkpoint.mode=budget", `activation_checkpoint.memory_budget: must be set for mode "budget"`},
		{"--activation_checkpoint.moe=budget", `activation_checkpoint.moe: a budget is one for the whole step: "budget"`},
		{"--activation_checkpoint.check=all", `activation_checkpoint.check: unknown name: "all"; known are "off", "shape", "checksum", "bitwise"`},
		{"--activation_checkpoint.save=a,", `activation_checkpoint.save: must not hold an empty string: "a", ""`},
		{"--state.interval=0", "state.interval: must be at least 1: 0; "},
		{"--metrics.log_freq=0", "metrics.log_freq: must be at least 1"},
	} {
		c := valid
		if err := c.Override(test.arg); err != nil {
			t.Fatal(err)
		}
		err := c.Validate()
		if err == nil {
			t.Errorf("%s: no error", test.arg)
		} else if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got %s\nwant %s", test.arg, err, test.want)
		}
	}
	if err := (train.Config{}).Validate(); err == nil || strings.Count(err.Error(), "\n") < 8 {
		t.Errorf("the zero config: want every problem at once: %v", err)
	}
	off := valid
	off.State = train.StateConfig{}
	off.Validation = train.ValidationConfig{}
	if err := off.Validate(); err != nil {
		t.Errorf("what is off needs no values: %v", err)
	}
}

func TestConfigRoundTrip(t *testing.T) {
	c := train.DefaultConfig()
	c.Training.Dataset = train.StringList{`a "b" \ é`, ""}
	c.Optimizer.LR = 0.1 + 0.2
	c.Optimizer.Eps = 5e-324
	zero, lr := 0.0, 1e-3
	c.Optimizer.Groups = []train.OptimizerGroup{{Pattern: "norm", WeightDecay: &zero}, {Pattern: "layers.*.moe", Name: "Muon", LR: &lr}}
	roundTrip(t, c)
}

// roundTrip checks that c survives being written and read.
func roundTrip(t *testing.T, c train.Config) {
	t.Helper()
	first, err := c.TOML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := train.ParseConfig("written.toml", first)
	if err != nil {
		t.Fatalf("%v in\n%s", err, first)
	}
	second, err := back.TOML()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("written:\n%s\nread and written:\n%s", first, second)
	}
}

func TestConfigHash(t *testing.T) {
	base := train.DefaultConfig()
	base.Training.Dataset = train.StringList{"a.txt"}
	hash := func(args ...string) string {
		c := base
		for _, a := range args {
			if err := c.Override(a); err != nil {
				t.Fatal(err)
			}
		}
		h, err := c.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, same := range []string{"--activation_checkpoint.mode=full", "--training.threads=2", "--job.dump_folder=x",
		"--metrics.log_freq=1", "--state.interval=3", "--training.prefetch=0", "--training.global_batch_size=8"} {
		if hash(same) != hash() {
			t.Errorf("%s changes the hash but not the numbers trained", same)
		}
	}
	for _, other := range []string{"--training.seed=1", "--training.packing=first_fit", "--training.dataset_weights=1", "--validation.dataset=a.txt", "--optimizer.lr=1", "--training.steps=3", "--lr_scheduler.decay_ratio=0", "--model.flavor=x"} {
		if hash(other) == hash() {
			t.Errorf("%s changes the numbers trained but not the hash", other)
		}
	}
}

func TestLoadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[training]\ndataset = \"a\"\nsteps = 5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := train.LoadConfig(path, "--training.steps=6", "--training.global_batch_size=32")
	if err != nil || c.Training.Steps != 6 || c.Training.Microbatches() != 4 {
		t.Errorf("%+v, %v", c.Training, err)
	}
	if _, err := train.LoadConfig(path, "--training.steps=0"); err == nil {
		t.Error("an override must be validated")
	}
	if _, err := train.LoadConfig(path + "x"); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("a missing file must be named: %v", err)
	}
}

func TestShippedConfigs(t *testing.T) {
	paths, err := filepath.Glob("../configs/*.toml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no configs found", err)
	}
	for _, path := range paths {
		if _, err := train.LoadConfig(path); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("[training]\ndataset = \"a.txt\"\nsteps = 1_000\n[optimizer]\nlr = 1e-3\n"))
	f.Add([]byte("optimizer = {lr = 1, beta1 = 0.9}\ntraining.steps = 3"))
	f.Add([]byte("[training]\nStep = 3"))
	f.Add([]byte("[[training]]\nx.y.z = 3"))
	f.Add([]byte("[[optimizer.groups]]\npattern = \"norm\"\nweight_decay = 0\n[[optimizer.groups]]\npattern = \"moe\""))
	f.Add([]byte("[optimizer]\ngroups = [{pattern = \"a.*\", name = \"SGD\", lr = 1}, {}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := train.ParseConfig("x.toml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "train: config x.toml:") {
				t.Errorf("error without position: %v", err)
			}
			return
		}
		_ = c.Validate()
		roundTrip(t, c)
	})
}

func FuzzOverride(f *testing.F) {
	for _, arg := range []string{"--training.steps=2_0", "--optimizer.lr=3e-4", "--state.enable=true",
		`--activation_checkpoint.save=["x,y", 'z']`, `--job.dump_folder="out"`, "--lr_scheduler.decay_ratio=none"} {
		f.Add(arg)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		c := train.DefaultConfig()
		if err := c.Override(arg); err != nil {
			if !strings.HasPrefix(err.Error(), "train: override ") || !reflect.DeepEqual(c, train.DefaultConfig()) {
				t.Errorf("%v", err)
			}
			return
		}
		_ = c.Validate()
		roundTrip(t, c)
	})
}
