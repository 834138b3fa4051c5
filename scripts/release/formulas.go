package main

import (
	"bytes"
	"context"
	"fmt"
	"text/template"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
)

// formulas are those of package managers that fetch the archives.
type formulas struct{ *release }

// run writes what Homebrew and krew read: where the archives are, and their checksums.
func (r formulas) run(context.Context) error {
	var brew, krew bytes.Buffer
	if err := brewTemplate.Execute(&brew, r.formula()); err != nil {
		return err
	}
	if err := krewTemplate.Execute(&krew, r.formula()); err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{"pipeops.rb", brew.Bytes()}, {"pipeops-krew.yaml", krew.Bytes()}} {
		if err := r.add(file.name, published.KindPackage, anywhere, text(file.content)); err != nil {
			return err
		}
	}
	return nil
}

type formula struct {
	Version, Number, Homepage string
	Archives                  []archived
}

type archived struct{ OS, Arch, URL, SHA256 string }

// Of returns the archives of a system.
func (f formula) Of(system string) (list []archived) {
	for _, a := range f.Archives {
		if a.OS == system {
			list = append(list, a)
		}
	}
	return list
}

func (r formulas) formula() formula {
	f := formula{Version: r.version, Number: r.number(), Homepage: repository}
	for _, file := range r.manifest.Files {
		if file.Kind == published.KindArchive {
			f.Archives = append(f.Archives, archived{file.OS, file.Arch, r.downloads(file.Name), file.SHA256})
		}
	}
	return f
}

var brewTemplate = template.Must(template.New("brew").Funcs(template.FuncMap{"cpu": func(arch string) (string, error) {
	if cpu, known := map[string]string{"amd64": "intel", "arm64": "arm"}[arch]; known {
		return cpu, nil
	}
	return "", fmt.Errorf("homebrew: it knows no %s", arch)
}}).Parse(`class Pipeops < Formula
  desc "Deploy to Kubernetes clusters that no inbound port leads to"
  homepage "{{ .Homepage }}"
  version "{{ .Number }}"
  license "MIT"
{{ range $system, $block := .Systems }}{{ with $.Of $system }}
  on_{{ $block }} do
{{- range . }}
    on_{{ cpu .Arch }} do
      url "{{ .URL }}"
      sha256 "{{ .SHA256 }}"
    end
{{- end }}
  end
{{ end }}{{ end }}
  def install
    programs = Dir["pipeops-*"].select { |file| File.file?(file) }
    bin.install programs
    programs.each { |program| generate_completions_from_executable(bin/program, "completion") }
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/pipeops-runner version")
  end
end
`))

// Systems are Go's names of the systems that Homebrew knows, and its own.
func (f formula) Systems() map[string]string {
	return map[string]string{"darwin": "macos", "linux": "linux"}
}

// krewTemplate makes pipeops-agent the plugin kubectl pipeops.
var krewTemplate = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: pipeops
spec:
  version: {{ .Version }}
  homepage: {{ .Homepage }}
  shortDescription: Check and set up the PipeOps agent of a cluster
  description: |
    Finds out why the agent of a cluster is not ready, tests its policy, reads its audit log and
    installs components. "kubectl pipeops" is the program pipeops-agent.
  platforms:
{{- range .Archives }}{{ $suffix := "" }}{{ if eq .OS "windows" }}{{ $suffix = ".exe" }}{{ end }}
    - selector:
        matchLabels:
          os: {{ .OS }}
          arch: {{ .Arch }}
      uri: {{ .URL }}
      sha256: {{ .SHA256 }}
      files:
        - from: "*/pipeops-agent{{ $suffix }}"
          to: .
        - from: "*/LICENSE"
          to: .
      bin: pipeops-agent{{ $suffix }}
{{- end }}
`))
