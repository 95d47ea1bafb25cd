package train

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// Override applies one command-line override of the form
// "--section.key=value"; the dashes may be left out. See [Config.Set] for how
// the value is read.
func (c *Config) Override(arg string) error {
	key, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
	if !ok {
		return fmt.Errorf("train: override %q: no value; write --%s=VALUE", arg, key)
	}
	return c.Set(key, value)
}

// Set gives one key, such as "training.steps", a value. The key's type says
// how the value is read: a string needs no quotes (TOML quotes are understood),
// a list is comma-separated or a TOML array, and "none" unsets an optional
// number. An error leaves c as it was.
func (c *Config) Set(key, value string) error {
	field, ok := lookupKey(key)
	if !ok {
		return fmt.Errorf("train: override --%s: %s", key, unknownKey(key))
	}
	if field.isTables() || field.index == nil {
		return fmt.Errorf("train: override --%s: tables of a list cannot be set one by one; write them in the file", key)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("train: override --%s: value is not UTF-8: %q", key, value)
	}
	v, err := parseValue(field.typ, value)
	if err != nil {
		return fmt.Errorf("train: override --%s=%s: %s; write %s", key, value, err, describeType(field.typ))
	}
	reflect.ValueOf(c).Elem().FieldByIndex(field.index).Set(v)
	return nil
}

func parseValue(typ reflect.Type, text string) (reflect.Value, error) {
	switch {
	case typ == reflect.TypeFor[StringList]():
		list, err := parseList(text)
		return reflect.ValueOf(list), err
	case typ == reflect.TypeFor[NumberList]():
		list, err := parseNumbers(text)
		return reflect.ValueOf(list), err
	case typ == reflect.TypeFor[Duration]():
		var d Duration
		err := d.UnmarshalText([]byte(text))
		return reflect.ValueOf(d), err
	case typ == reflect.TypeFor[MemoryBudget]():
		s, err := parseString(text)
		var m MemoryBudget
		if err == nil {
			err = m.UnmarshalText([]byte(s))
		}
		return reflect.ValueOf(m), err
	case typ == reflect.TypeFor[*float64]():
		if text == "none" {
			return reflect.Zero(typ), nil
		}
		f, err := parseNumber(text, parseFloat)
		return reflect.ValueOf(&f), err
	case typ.Kind() == reflect.String:
		s, err := parseString(text)
		return reflect.ValueOf(s), err
	case typ.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return reflect.Value{}, fmt.Errorf("not a boolean")
		}
		return reflect.ValueOf(text == "true"), nil
	case typ.Kind() == reflect.Float64:
		f, err := parseNumber(text, parseFloat)
		return reflect.ValueOf(f), err
	default: // int and int64: no other kind is a field of Config
		i, err := parseNumber(text, func(s string) (int64, error) { return strconv.ParseInt(s, 10, typ.Bits()) })
		if err != nil {
			return reflect.Value{}, err
		}
		return reflect.ValueOf(i).Convert(typ), nil
	}
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// parseNumber allows underscores between digits, as TOML does.
func parseNumber[T any](text string, parse func(string) (T, error)) (T, error) {
	var zero T
	for part := range strings.SplitSeq(text, "_") {
		if part == "" || (part != text && strings.ContainsFunc(part[:1]+part[len(part)-1:], isNotNumeric)) {
			return zero, fmt.Errorf("not a number")
		}
	}
	// A hexadecimal float is Go's, not TOML's.
	if strings.ContainsAny(text, "xX") {
		return zero, fmt.Errorf("not a decimal number")
	}
	v, err := parse(strings.ReplaceAll(text, "_", ""))
	if err != nil {
		if numErr, ok := err.(*strconv.NumError); ok && numErr.Err == strconv.ErrRange {
			return zero, fmt.Errorf("out of range")
		}
		return zero, fmt.Errorf("not a number of this type")
	}
	return v, nil
}

func isNotNumeric(r rune) bool { return !strings.ContainsRune("0123456789+-.", r) }

func parseString(text string) (string, error) {
	if text == "" || (text[0] != '"' && text[0] != '\'') {
		return text, nil
	}
	var doc struct{ V string }
	if err := toml.Unmarshal([]byte("V = "+text), &doc); err != nil {
		return "", fmt.Errorf("quotes do not match")
	}
	return doc.V, nil
}

func parseList(text string) (StringList, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] == '[' {
		var doc struct{ V []string }
		if err := toml.Unmarshal([]byte("V = "+text), &doc); err != nil {
			return nil, fmt.Errorf("not a TOML array of strings")
		}
		return doc.V, nil
	}
	return strings.Split(text, ","), nil
}

func parseNumbers(text string) (NumberList, error) {
	if inner, found := strings.CutPrefix(text, "["); found {
		if text, found = strings.CutSuffix(inner, "]"); !found {
			return nil, fmt.Errorf("not a TOML array of numbers")
		}
	}
	var numbers NumberList
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		f, err := parseNumber(strings.TrimSpace(part), parseFloat)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, f)
	}
	return numbers, nil
}

// describeType says how a value of a key is written.
func describeType(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[StringList]():
		return `a string or a list of strings`
	case typ == reflect.TypeFor[NumberList]():
		return "a list of numbers, such as [3, 1]"
	case typ == reflect.TypeFor[Duration]():
		return `a duration, such as "90s" or "5m"`
	case typ == reflect.TypeFor[MemoryBudget]():
		return `bytes, such as "512MiB", or a fraction of memory, such as 0.5`
	case typ == reflect.TypeFor[*float64](), typ.Kind() == reflect.Float64:
		return "a number, such as 0.5 or 3e-4"
	case typ.Kind() == reflect.String:
		return "a string"
	case typ.Kind() == reflect.Slice:
		return "a list of tables"
	case typ.Kind() == reflect.Bool:
		return "true or false"
	default:
		return "a whole number, such as 20"
	}
}
