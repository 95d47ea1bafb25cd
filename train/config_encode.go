package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/pelletier/go-toml/v2"
)

// ConfigFile is the name under which a run keeps its whole config in its dump
// folder.
const ConfigFile = "config.toml"

// TOML writes every key, in the order of the structs: equal configs give equal
// bytes, and [ParseConfig] reads them back. An optional number that is not set
// is left out.
func (c Config) TOML() ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.SetIndentTables(false)
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Hash identifies the numbers a config trains: two configs with the same hash
// give the same loss, gradients and parameters at every step (on one kernel
// level). Where a run writes, how often it reports, saves and validates, its
// threads and its activation checkpointing do not count.
func (c Config) Hash() (string, error) {
	counted := Config{
		Model:       c.Model,
		Training:    c.Training,
		Optimizer:   c.Optimizer,
		LRScheduler: c.LRScheduler,
	}
	counted.Training.Threads = 0
	counted.Training.Prefetch = 0
	if len(c.Validation.Dataset) > 0 {
		// Nothing of training.dataset is held out, whatever the name.
		counted.Validation.Dataset = StringList{"own"}
	}
	// Where a run starts from is part of its numbers.
	counted.State.InitialLoadPath, counted.State.InitialLoadModelOnly = c.State.InitialLoadPath, c.State.InitialLoadPath != "" && c.State.InitialLoadModelOnly
	counted.State.LoadOnly, counted.State.ExcludeFromLoading = c.State.LoadOnly, c.State.ExcludeFromLoading
	if counted.Training.GlobalBatchSize == 0 {
		counted.Training.GlobalBatchSize = c.Training.LocalBatchSize
	}
	text, err := counted.TOML()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
