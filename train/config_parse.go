package train

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/lethe-go/lethe/internal/editdistance"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// ParseConfig reads TOML over the defaults. It is strict: a key that does not
// exist, or a value of the wrong type, is an error with its position, of which
// file is the first part. The values are not validated; overrides may follow.
func ParseConfig(file string, text []byte) (Config, error) {
	c := DefaultConfig()
	if err := toml.Unmarshal(text, &c); err != nil {
		return Config{}, positioned(file, err)
	}
	// go-toml's own strict mode folds case, which would let "LR" and "lr" both
	// set one field.
	if err := checkKeys(file, text); err != nil {
		return Config{}, err
	}
	return c, nil
}

func positioned(file string, err error) error {
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return fmt.Errorf("train: config %s: %s", file, strings.TrimPrefix(err.Error(), "toml: "))
	}
	line, column := decode.Position()
	what := strings.TrimPrefix(decode.Error(), "toml: ")
	if key := strings.Join(decode.Key(), "."); key != "" {
		if field, ok := lookupKey(key); ok {
			// The rest of the message is the Go field.
			what, _, _ = strings.Cut(what, " into struct field")
			return fmt.Errorf("train: config %s:%d:%d: %s: %s; write %s", file, line, column, key, what, describeType(field.typ))
		}
		what = key + ": " + what
	}
	return fmt.Errorf("train: config %s:%d:%d: %s", file, line, column, what)
}

// checkKeys walks a document that is known to parse and reports every key that
// no field of Config has.
func checkKeys(file string, text []byte) error {
	var p unstable.Parser
	p.Reset(text)
	var errs []error
	report := func(at unstable.Range, format string, args ...any) {
		pos := p.Shape(at).Start
		errs = append(errs, fmt.Errorf("train: config %s:%d:%d: %s", file, pos.Line, pos.Column, fmt.Sprintf(format, args...)))
	}
	var visit func(prefix []string, n *unstable.Node)
	// table visits the keys of a table that stands in the value of a key.
	table := func(path []string, at unstable.Range, value *unstable.Node) {
		if !isTable(path) {
			report(at, "%s", unknownSection(strings.Join(path, ".")))
			return
		}
		for it := value.Children(); it.Next(); {
			visit(path, it.Node())
		}
	}
	visit = func(prefix []string, n *unstable.Node) {
		path, at := nodeKey(prefix, n)
		if n.Value().Kind == unstable.InlineTable {
			table(path, at, n.Value())
			return
		}
		key := strings.Join(path, ".")
		field, ok := lookupKey(key)
		switch {
		case !ok || slices.ContainsFunc(path, dotted): // a quoted key may hold a dot
			report(at, "%s", unknownKey(key))
		case field.index == nil && len(prefix) < len(path)-1:
			list, _ := splitKey(key)
			report(at, "%s is a list of tables; write [[%s]]", list, list)
		case field.isTables():
			for it := n.Value().Children(); it.Next(); {
				table(path, at, it.Node())
			}
		case field.typ == reflect.TypeFor[StringList]() && n.Value().Kind != unstable.String && n.Value().Kind != unstable.Array:
			// go-toml hands the text of any scalar to UnmarshalText.
			report(at, "%s: cannot decode TOML %s; write %s", key, strings.ToLower(n.Value().Kind.String()), describeType(field.typ))
		}
	}
	var section []string
	skip := false // keys of an unknown section would only repeat the complaint
	for p.NextExpression() {
		switch n := p.Expression(); n.Kind {
		case unstable.Table, unstable.ArrayTable:
			var at unstable.Range
			section, at = nodeKey(nil, n)
			name := strings.Join(section, ".")
			switch {
			case !isTable(section):
				report(at, "%s", unknownSection(name))
				skip = true
			case n.Kind == unstable.Table && len(section) > 1:
				report(at, "%s is a list of tables; write [[%s]]", name, name)
				skip = true
			default:
				skip = false
			}
		case unstable.KeyValue:
			if !skip {
				visit(section, n)
			}
		}
	}
	return errors.Join(errs...)
}

// nodeKey returns the dotted key of n below prefix and where it stands.
func nodeKey(prefix []string, n *unstable.Node) ([]string, unstable.Range) {
	path := slices.Clone(prefix)
	var at unstable.Range
	for it := n.Key(); it.Next(); {
		if at.Length == 0 {
			at = it.Node().Raw
		}
		path = append(path, string(it.Node().Data))
	}
	return path, at
}

// configKey is one leaf of Config, or of the tables in a list such as
// [[optimizer.groups]].
type configKey struct {
	name  string // "section.key"
	index []int  // path of the field, for reflect; nil in a list of tables
	typ   reflect.Type
}

// isTables reports whether the key's value is a list of tables.
func (k configKey) isTables() bool {
	return k.typ.Kind() == reflect.Slice && k.typ.Elem().Kind() == reflect.Struct
}

// configKeys lists the leaves of Config in the order of the structs, those of a list of
// tables behind the list.
var configKeys = sync.OnceValue(func() []configKey {
	var keys []configKey
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		section := config.Field(i)
		for j := range section.Type.NumField() {
			field := section.Type.Field(j)
			k := configKey{
				name:  tomlName(section) + "." + tomlName(field),
				index: []int{i, j},
				typ:   field.Type,
			}
			keys = append(keys, k)
			if k.isTables() {
				for l := range k.typ.Elem().NumField() {
					field := k.typ.Elem().Field(l)
					keys = append(keys, configKey{name: k.name + "." + tomlName(field), typ: field.Type})
				}
			}
		}
	}
	return keys
})

// tomlName is the key of a field.
func tomlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return name
}

// splitKey divides "optimizer.groups.lr" into the table and the key in it.
func splitKey(name string) (table, leaf string) {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[i+1:]
}

// configSections lists the sections in order.
var configSections = sync.OnceValue(func() []string {
	var names []string
	for _, k := range configKeys() {
		section, _, _ := strings.Cut(k.name, ".")
		if len(names) == 0 || names[len(names)-1] != section {
			names = append(names, section)
		}
	}
	return names
})

func lookupKey(name string) (configKey, bool) {
	for _, k := range configKeys() {
		if k.name == name {
			return k, true
		}
	}
	return configKey{}, false
}

// isTable reports whether a path is that of a section or of a list of tables.
func isTable(path []string) bool {
	if len(path) == 1 {
		return slices.Contains(configSections(), path[0])
	}
	k, ok := lookupKey(strings.Join(path, "."))
	return ok && k.isTables() && !slices.ContainsFunc(path, dotted)
}

func dotted(part string) bool { return strings.Contains(part, ".") }

// unknownKey says that key does not exist and which one may be meant.
func unknownKey(key string) string {
	section, leaf := splitKey(key)
	var names, siblings []string
	for _, k := range configKeys() {
		names = append(names, k.name)
		if s, l := splitKey(k.name); s == section {
			siblings = append(siblings, l)
		}
	}
	if l, ok := nearest(leaf, siblings); ok {
		return fmt.Sprintf("unknown key %s; did you mean %s.%s?", key, section, l)
	}
	// The right key in the wrong section is a likely mistake too.
	for _, name := range names {
		if strings.HasSuffix(name, "."+leaf) {
			return fmt.Sprintf("unknown key %s; did you mean %s?", key, name)
		}
	}
	if siblings != nil {
		return fmt.Sprintf("unknown key %s; [%s] has %s", key, section, strings.Join(siblings, ", "))
	}
	if name, ok := nearest(key, names); ok {
		return fmt.Sprintf("unknown key %s; did you mean %s?", key, name)
	}
	return fmt.Sprintf("unknown key %s; the sections are %s", key, strings.Join(configSections(), ", "))
}

// unknownSection says that there is no table of this name.
func unknownSection(name string) string {
	if s, ok := nearest(name, configSections()); ok {
		return fmt.Sprintf("unknown section [%s]; did you mean [%s]?", name, s)
	}
	for _, k := range configKeys() {
		if _, ok := nearest(name, []string{k.name}); ok && k.isTables() {
			return fmt.Sprintf("unknown section [%s]; did you mean [[%s]]?", name, k.name)
		}
	}
	return fmt.Sprintf("unknown section [%s]; the sections are %s", name, strings.Join(configSections(), ", "))
}

// nearest returns the candidate with the smallest edit distance from word, if
// it is near enough to be a slip: a third of the word, at least one letter.
func nearest(word string, candidates []string) (string, bool) {
	best, least := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := editdistance.Levenshtein(word, c); d < least {
			best, least = c, d
		}
	}
	return best, best != ""
}
