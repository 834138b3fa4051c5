package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	sigsyaml "sigs.k8s.io/yaml"
)

// builtins are the plugins that are part of kustomize and do no more than fields of a
// kustomization. HelmChartInflationGenerator is none of them: it runs a program.
var builtins = []string{
	"AnnotationsTransformer", "HashTransformer", "ImageTagTransformer", "LabelTransformer", "NamespaceTransformer",
	"PatchJson6902Transformer", "PatchStrategicMergeTransformer", "PatchTransformer",
	"PrefixSuffixTransformer", "PrefixTransformer", "SuffixTransformer",
	"ReplacementTransformer", "ReplicaCountTransformer", "ValueAddTransformer",
	"ConfigMapGenerator", "IAMPolicyGenerator", "SecretGenerator",
}

// plugins looks at the generators, transformers and validators of a kustomization: each is
// either a file's path or the configuration itself.
func (l *walk) plugins(folder string, k types.Kustomization) error {
	for _, entry := range slices.Concat(k.Generators, k.Transformers, k.Validators) {
		if err := l.plugin(folder, entry); err != nil {
			return err
		}
	}
	return nil
}

func (l *walk) plugin(folder, entry string) error {
	if err := plainAliases([]byte(entry)); err != nil {
		return err
	}
	configs, err := readPlugins([]byte(entry))
	if err == nil { // as kustomize distinguishes a configuration from a path
		return l.configured(folder, configs)
	}
	at, err := local(folder, entry)
	if err != nil {
		return err
	}
	text, ok := l.files[at]
	if !ok {
		return fmt.Errorf("%q is not a file of the repository: name files with the configuration of plugins, no folders", clip(entry))
	}
	if err := l.take(at); err != nil {
		return err
	}
	if configs, err = readPlugins(text); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if err := l.configured(folder, configs); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// readPlugins reads configurations as kustomize does.
func readPlugins(text []byte) ([]*resource.Resource, error) {
	all, err := resmap.NewFactory(provider.NewDefaultDepProvider().GetResourceFactory()).NewResMapFromBytes(text)
	if err != nil {
		return nil, err
	}
	return all.Resources(), nil
}

// configured refuses plugins that run something, and finds the files of the others. Their
// paths are seen from the kustomization's folder, wherever the configuration is.
func (l *walk) configured(folder string, configs []*resource.Resource) error {
	for _, c := range configs {
		gvk := c.GetGvk()
		switch {
		case gvk.Kind == "HelmChartInflationGenerator":
			return errors.New("HelmChartInflationGenerator fetches from elsewhere and runs a program; follow the chart as a source of type chart")
		case gvk.Group != "" || gvk.Version != "builtin":
			return fmt.Errorf("%s of %q is a custom plugin, which is not run here: only those of apiVersion builtin are", clip(gvk.Kind), clip(gvk.ApiVersion()))
		case !slices.Contains(builtins, gvk.Kind):
			return fmt.Errorf("there is no built-in plugin %q; there are %s", clip(gvk.Kind), strings.Join(builtins, ", "))
		}
		text, err := c.AsYAML()
		if err != nil {
			return err
		}
		paths, err := filesOfPlugin(gvk.Kind, text)
		if err != nil {
			return fmt.Errorf("%s: %w", gvk.Kind, err)
		}
		for _, p := range paths {
			if err := l.file(folder, p); err != nil {
				return fmt.Errorf("%s: %w", gvk.Kind, err)
			}
		}
	}
	return nil
}

// filesOfPlugin returns the files that a built-in plugin loads. The decoder is the plugins' own: it
// takes a field's name in any case.
func filesOfPlugin(kind string, text []byte) ([]string, error) {
	var config struct {
		Path           string   `json:"path"`
		Paths          []string `json:"paths"`
		TargetFilePath string   `json:"targetFilePath"`
		Replacements   []struct {
			Path string `json:"path"`
		} `json:"replacements"`
		types.KvPairSources
	}
	if err := sigsyaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	switch kind {
	case "PatchTransformer", "PatchJson6902Transformer":
		return []string{config.Path}, nil
	case "PatchStrategicMergeTransformer":
		return slices.DeleteFunc(config.Paths, func(p string) bool { return strings.Contains(p, "\n") }), nil // the patch itself
	case "ValueAddTransformer":
		return []string{config.TargetFilePath}, nil
	case "ReplacementTransformer":
		paths := make([]string, 0, len(config.Replacements))
		for _, r := range config.Replacements {
			paths = append(paths, r.Path)
		}
		return paths, nil
	case "ConfigMapGenerator", "SecretGenerator":
		return filesOfPairs(config.KvPairSources), nil
	}
	return nil, nil
}
