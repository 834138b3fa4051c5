package render

import (
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// What a kustomization may load. Repeated loads count again: twenty folders that each name the next
// one twice are a million loads.
const (
	maxLoads  = 2000
	maxLoaded = 8 << 20
	maxNested = 32
)

// kustomize builds a kustomization in memory. It determines in advance what may be loaded:
// kustomize would fetch addresses over HTTP, or let git clone them, in every place where a path may
// stand.
func kustomize(j Job) Result {
	l := &walk{files: j.Files, usable: j.usable, fs: filesys.MakeFsInMemory()}
	if err := l.folder(clean(j.Path), 0); err != nil {
		return wrongFile(err, "correct the kustomization")
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(l.fs, "/"+clean(j.Path))
	if err != nil {
		return wrong("correct the kustomization; `kustomize build` says the same", "%v", err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return wrong("correct the kustomization", "%v", err)
	}
	return Result{Texts: []Text{{"kustomize build of " + where(j.Path), text}}}
}

// walk follows a kustomization as kustomize will.
type walk struct {
	files  map[string][]byte
	usable func(name string) error
	fs     filesys.FileSystem
	loads  int
	bytes  int
}

var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// kustomization returns the name of a folder's kustomization file, or an empty string.
func (l *walk) kustomization(folder string) string {
	for _, name := range kustomizations {
		if _, ok := l.files[path.Join(folder, name)]; ok {
			return path.Join(folder, name)
		}
	}
	return ""
}

func (l *walk) folder(folder string, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("kustomizations are more than %d deep within each other", maxNested)
	}
	name := l.kustomization(folder)
	if name == "" {
		return fmt.Errorf("there is no kustomization.yaml in %s", where(folder))
	}
	if err := l.take(name); err != nil {
		return err
	}
	var k types.Kustomization
	if err := k.Unmarshal(l.files[name]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	k.FixKustomization()
	if len(k.HelmCharts)+len(k.HelmChartInflationGenerator) > 0 || k.HelmGlobals != nil {
		return fmt.Errorf("%s: helmCharts fetches from elsewhere and runs a program; follow the chart as a source of type chart", name)
	}
	if err := l.plugins(folder, k); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, p := range filesOf(k) {
		if err := l.file(folder, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, p := range append(append([]string{}, k.Resources...), k.Components...) {
		if err := l.resource(folder, p, depth); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// filesOf returns the paths of all files that are not resources.
func filesOf(k types.Kustomization) []string {
	out := append(append([]string{}, k.Crds...), k.Configurations...)
	for _, p := range append(append([]types.Patch{}, k.Patches...), k.PatchesJson6902...) { //nolint:staticcheck // deprecated, and loaded all the same
		out = append(out, p.Path)
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // likewise
		if !strings.Contains(string(p), "\n") { // otherwise it is the patch itself
			out = append(out, string(p))
		}
	}
	for _, r := range k.Replacements {
		out = append(out, r.Path)
	}
	if p, ok := k.OpenAPI["path"]; ok {
		out = append(out, p)
	}
	sources := make([]types.KvPairSources, 0, len(k.ConfigMapGenerator)+len(k.SecretGenerator))
	for _, c := range k.ConfigMapGenerator {
		sources = append(sources, c.KvPairSources)
	}
	for _, s := range k.SecretGenerator {
		sources = append(sources, s.KvPairSources)
	}
	for _, s := range sources {
		out = append(out, filesOfPairs(s)...)
	}
	return out
}

func filesOfPairs(s types.KvPairSources) []string {
	out := append(append([]string{}, s.EnvSources...), s.EnvSource)
	for _, f := range s.FileSources {
		if _, p, named := strings.Cut(f, "="); named {
			f = p
		}
		out = append(out, f)
	}
	return out
}

// local returns where a path leads within the repository.
func local(folder, p string) (string, error) {
	// Everything that kustomize treats as an address contains one of these, or begins so.
	if strings.ContainsAny(p, ":?@\\") || strings.Contains(p, "//") || strings.HasPrefix(strings.ToLower(p), "github.com") || path.IsAbs(p) {
		return "", fmt.Errorf("%q is not a path within the repository: nothing is fetched from elsewhere", clip(p))
	}
	at := path.Join(folder, p)
	if at == ".." || strings.HasPrefix(at, "../") {
		return "", fmt.Errorf("%q leads out of the repository", clip(p))
	}
	if at == "." {
		at = ""
	}
	return at, nil
}

func (l *walk) file(folder, p string) error {
	if p == "" {
		return nil
	}
	at, err := local(folder, p)
	if err != nil {
		return err
	}
	if _, ok := l.files[at]; !ok {
		return fmt.Errorf("%q is not in the repository, or larger than 1 MiB", clip(p))
	}
	return l.take(at)
}

func (l *walk) resource(folder, p string, depth int) error {
	at, err := local(folder, p)
	if err != nil {
		return err
	}
	if _, ok := l.files[at]; ok {
		return l.take(at)
	}
	if l.kustomization(at) == "" {
		return fmt.Errorf("%q is neither a file nor a folder with a kustomization in the repository", clip(p))
	}
	return l.folder(at, depth+1)
}

// take counts a file, and passes it to kustomize.
func (l *walk) take(name string) error {
	l.loads++
	l.bytes += len(l.files[name])
	if l.loads > maxLoads || l.bytes > maxLoaded {
		return fmt.Errorf("it loads more than %d files or %d MiB, counting what is loaded several times", maxLoads, maxLoaded>>20)
	}
	if err := l.usable(name); err != nil {
		return err
	}
	if err := plainAliases(l.files[name]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return l.fs.WriteFile("/"+name, l.files[name])
}

// aliased bounds the expansion of a text's aliases: rendering writes them out.
var aliased = decode.Limits{Bytes: maxLoaded, Values: maxValues, Aliases: 10_000, Expanded: maxLoaded, Depth: 1000}

// plainAliases refuses YAML whose aliases expand to an unreasonable size.
func plainAliases(text []byte) error {
	if err := aliased.PlainAliases(text); decode.Exceeded(err) {
		return err
	}
	return nil // or not YAML, such as a configuration file: kustomize reports that if it needs the file
}
