// Command install writes install.sh, which is made of the parts in this folder,
// and the small scripts beside it. A release stamps its version and keys and the
// address of its control plane into them, and the checksums of what each downloads:
// those of the agent's manifest and of the programs into install.sh, and that of
// install.sh into the others.
//
//	go run ./scripts/install -output dist -version v1.2.3 -pin dist/agent.yaml
package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

//go:generate go run . -output ..

//go:embed *.sh *.ps1
var files embed.FS

// parts are install.sh's, in their order. Each is read by itself: a concern a file.
var parts = []string{
	"head", "settings", "preset", "log", "facts", "decide", "state", "download", "pinned", "signature", "k3s", "docker", "kube", "await", "components",
	"server", "command_install", "command_server", "command_runner", "command_uninstall", "command_upgrade", "command_upgrade_kubernetes", "command_doctor", "command_help", "main",
}

// wrappers are the small scripts, which find install.sh and hand over to it.
var wrappers = map[string]string{"join-worker.sh": "join_worker", "uninstall.sh": "uninstall"}

// stamp is what a release writes into its scripts.
type stamp struct{ version, sums, install, keys, controlPlane string }

func main() {
	var s stamp
	output := flag.String("output", "", "folder to write the scripts to")
	flag.StringVar(&s.version, "version", "", "version of the release")
	flag.StringVar(&s.controlPlane, "control-plane-url", "", "control plane of those who name none")
	flag.StringVar(&s.keys, "keys", "", "minisign public keys of the maintainers, separated by commas")
	var pinned []string
	flag.Func("pin", "file of the release whose checksum install.sh is to carry; may be repeated", func(file string) error {
		pinned = append(pinned, file)
		return nil
	})
	flag.Parse()
	if err := run(*output, pinned, s); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func run(output string, pinned []string, s stamp) error {
	var sums []string
	for _, file := range pinned {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		sums = append(sums, sum(content)+" "+filepath.Base(file))
	}
	s.sums = strings.Join(sums, ",")
	scripts, err := assemble(s)
	if err != nil {
		return err
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(output, name), []byte(text), 0o755); err != nil { //nolint:gosec // a script that all may run
			return err
		}
	}
	return nil
}

func sum(text []byte) string {
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

// assemble makes the scripts.
func assemble(s stamp) (map[string]string, error) {
	install, err := join(parts...)
	if err != nil {
		return nil, err
	}
	install = s.apply(install)
	if s.version != "" {
		s.install = sum([]byte(install))
	}
	windows, err := files.ReadFile("windows.ps1")
	if err != nil {
		return nil, err
	}
	scripts := map[string]string{"install.sh": install, "install.ps1": s.apply(string(windows))}
	for name, part := range wrappers {
		text, err := join(part+"_head", "wrapper", part)
		if err != nil {
			return nil, err
		}
		scripts[name] = s.apply(text)
	}
	return scripts, nil
}

func join(names ...string) (string, error) {
	texts := make([]string, 0, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name + ".sh")
		if err != nil {
			return "", err
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "\n"), nil
}

// apply sets the stamped variables.
func (s stamp) apply(script string) string {
	for name, value := range map[string]string{
		"RELEASE_VERSION": s.version, "RELEASE_SHA256SUMS": s.sums, "RELEASE_INSTALL_SHA256": s.install,
		"RELEASE_KEYS": s.keys, "RELEASE_CONTROL_PLANE_URL": s.controlPlane,
	} {
		if value != "" {
			line := regexp.MustCompile(`(?m)^\$?` + name + ` ?= ?".*"$`) // PowerShell's have a dollar and spaces
			script = line.ReplaceAllStringFunc(script, func(found string) string {
				assigned, _, _ := strings.Cut(found, `"`)
				return assigned + strconv.Quote(value)
			})
		}
	}
	return script
}
