package render

import (
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// IgnoreFile holds patterns of files that are not manifests, as .gitignore has them. A folder's
// file is about what is in it and below. Flux has the same file.
const IgnoreFile = ".sourceignore"

// usual are files in YAML or JSON that many repositories have and that are not manifests. Flux
// leaves out the first ones too.
var usual = []string{
	".*", "appveyor.yml", "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
	"azure-pipelines.yml", "bitbucket-pipelines.yml", "buildspec.yml", "wercker.yml",
	"compose.y*ml", "compose.*.y*ml", "docker-compose.y*ml", "docker-compose.*.y*ml",
	"mkdocs.yml", "skaffold.yaml", "pnpm-*.yaml", "package.json", "package-lock.json", "composer.json", "renovate.json", "tsconfig*.json",
	"node_modules/",
}

// notManifests returns which of a folder's files are not manifests. What a folder's own file of
// patterns says comes after the usual ones, so that it can take files back in with !PATTERN.
func notManifests(files map[string][]byte, folder string) func(name string) bool {
	patterns := parsed(usual, folder)
	var names []string
	for name := range files {
		if path.Base(name) == IgnoreFile {
			names = append(names, name)
		}
	}
	slices.Sort(names) // a folder's before those of folders in it
	for _, name := range names {
		patterns = append(patterns, parsed(strings.Split(string(files[name]), "\n"), clean(path.Dir(name)))...)
	}
	matcher := gitignore.NewMatcher(patterns)
	return func(name string) bool { return matcher.Match(strings.Split(name, "/"), false) }
}

// parsed returns the patterns of lines, for what is in a folder.
func parsed(lines []string, folder string) (patterns []gitignore.Pattern) {
	var domain []string
	if folder = clean(folder); folder != "" {
		domain = strings.Split(folder, "/")
	}
	for _, line := range lines {
		if line = strings.TrimSuffix(line, "\r"); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, gitignore.ParsePattern(line, domain))
		}
	}
	return patterns
}
