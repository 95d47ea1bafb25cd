package main

import (
	"slices"
	"strings"

	"github.com/lethe-go/lethe/train"
)

// configArgs are the arguments of a command that needs a config.
type configArgs struct {
	path      string
	overrides []string          // --section.key=value
	flags     map[string]string // of the command itself, without dashes
}

// parseConfigArgs tells apart --config, the command's own flags and overrides.
// A flag in bare takes no value, one in valued takes one.
func parseConfigArgs(args []string, bare, valued []string) (configArgs, error) {
	c := configArgs{flags: map[string]string{}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") {
			return c, usagef("unexpected argument %q: options are written --section.key=value", arg)
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case slices.Contains(bare, name):
			if hasValue {
				return c, usagef("--%s takes no value", name)
			}
			c.flags[name] = "true"
		case name == "config" || slices.Contains(valued, name):
			if !hasValue {
				if len(args) == 0 {
					return c, usagef("--%s needs a value: --%s=VALUE", name, name)
				}
				value, args = args[0], args[1:]
			}
			if name == "config" {
				c.path = value
			} else {
				c.flags[name] = value
			}
		case !strings.Contains(name, "."):
			return c, usagef("unknown option --%s: keys of the config are written --section.key=value", name)
		default:
			c.overrides = append(c.overrides, arg)
		}
	}
	if c.path == "" {
		return c, usagef("no config: give --config FILE, for example --config configs/quickstart.toml")
	}
	return c, nil
}

// load reads the config and applies the overrides.
func (c configArgs) load() (train.Config, error) {
	config, err := train.LoadConfig(c.path, c.overrides...)
	if err != nil {
		return config, &train.ConfigError{Err: err}
	}
	return config, nil
}
