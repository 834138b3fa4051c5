package chartflags

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// maxValuesFile bounds a file of values.
const maxValuesFile = 1 << 20

// Values are Helm's flags for values.
type Values struct {
	files, jsons, sets, texts, ofFiles []string
}

// Add adds the flags.
func (v *Values) Add(f *pflag.FlagSet) {
	f.StringArrayVarP(&v.files, "values", "f", nil, "YAML file of values, or - for standard input; later files override earlier ones")
	f.StringArrayVar(&v.jsons, "set-json", nil, "JSON values as KEY=JSON[,KEY=JSON], or one JSON object; overrides --values")
	f.StringArrayVar(&v.sets, "set", nil, `values in Helm's grammar: KEY=VALUE[,KEY=VALUE], a.b=VALUE, a[0]=VALUE, a={x,y}, a\.b=VALUE; overrides --set-json`)
	f.StringArrayVar(&v.texts, "set-string", nil, "like --set, but each value is text; overrides --set")
	f.StringArrayVar(&v.ofFiles, "set-file", nil, "text of files as KEY=FILE[,KEY=FILE]; overrides --set-string")
}

// Merged returns all values. Later flags of this order override earlier ones, as in Helm: --values,
// --set-json, --set, --set-string, --set-file.
func (v *Values) Merged(in io.Reader) (map[string]any, error) {
	all := map[string]any{}
	for _, file := range v.files {
		text, err := cli.ReadLimited(file, in, maxValuesFile)
		if err != nil {
			return nil, fmt.Errorf("--values: %w", err)
		}
		values := map[string]any{}
		if err := decode.LimitsFor(maxValuesFile).YAML(text, &values); err != nil {
			return nil, fmt.Errorf("--values: %s: %w", file, err)
		}
		merge(all, values)
	}
	read := func(name []rune) (any, error) {
		text, err := cli.ReadLimited(string(name), in, maxValuesFile)
		return string(text), err
	}
	for _, flag := range []struct {
		name  string
		given []string
		parse func(string, map[string]any) error
		quote bool // in Helm's error; the others may hold a secret
	}{
		{"set-json", v.jsons, parseJSON, false},
		{"set", v.sets, strvals.ParseInto, false},
		{"set-string", v.texts, strvals.ParseIntoString, false},
		{"set-file", v.ofFiles, func(s string, into map[string]any) error { return strvals.ParseIntoFile(s, into, read) }, true},
	} {
		for i, text := range flag.given {
			err := flag.parse(text, all)
			if err != nil && !flag.quote {
				err = errors.New("use Helm's grammar: KEY=VALUE[,KEY=VALUE] (docs/deployer/helm-releases.md)")
			}
			if err != nil {
				return nil, fmt.Errorf("--%s number %d: %w", flag.name, i+1, err)
			}
		}
	}
	return all, nil
}

// parseJSON takes one object, or Helm's list of keys with JSON.
func parseJSON(text string, into map[string]any) error {
	if !bytes.HasPrefix(bytes.TrimSpace([]byte(text)), []byte("{")) {
		return strvals.ParseJSON(text, into)
	}
	values := map[string]any{}
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return err
	}
	merge(into, values)
	return nil
}

// merge puts values over others, map by map.
func merge(into, from map[string]any) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		if had, ok := into[key].(map[string]any); ok && isMap {
			merge(had, below)
			continue
		}
		into[key] = value
	}
}
