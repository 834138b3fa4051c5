// Command install writes install.sh, which is made of the parts in this folder,
// and the two small scripts beside it. A release stamps its version, the
// checksum of its SHA256SUMS and the address of its control plane into it:
//
//	go run ./scripts/install -output dist -version v1.2.3 -sums dist/SHA256SUMS
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
	"strings"
)

//go:generate go run . -output ..

//go:embed *.sh
var files embed.FS

// parts are install.sh's, in their order. Each is read by itself: a concern a file.
var parts = []string{
	"head", "settings", "log", "facts", "decide", "state", "download", "k3s", "docker", "kube", "await",
	"command_install", "command_uninstall", "command_upgrade", "command_doctor", "command_help", "main",
}

// wrappers are the small scripts, which find install.sh and hand over to it.
var wrappers = map[string]string{"join-worker.sh": "join_worker", "uninstall.sh": "uninstall"}

// stamp is what a release writes into its scripts.
type stamp struct{ version, sums, controlPlane string }

func main() {
	var s stamp
	output := flag.String("output", "", "folder to write the scripts to")
	flag.StringVar(&s.version, "version", "", "version of the release")
	flag.StringVar(&s.controlPlane, "control-plane-url", "", "control plane of those who name none")
	sums := flag.String("sums", "", "the release's SHA256SUMS, whose checksum the script is to carry")
	flag.Parse()
	if err := run(*output, *sums, s); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

func run(output, sums string, s stamp) error {
	if sums != "" {
		text, err := os.ReadFile(sums)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(text)
		s.sums = hex.EncodeToString(digest[:])
	}
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

// assemble makes the scripts.
func assemble(s stamp) (map[string]string, error) {
	install, err := join(parts...)
	if err != nil {
		return nil, err
	}
	scripts := map[string]string{"install.sh": s.apply(install)}
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
		"RELEASE_VERSION": s.version, "RELEASE_SUMS_SHA256": s.sums, "RELEASE_CONTROL_PLANE_URL": s.controlPlane,
	} {
		if value != "" {
			line := regexp.MustCompile(`(?m)^` + name + `=".*"$`)
			script = line.ReplaceAllLiteralString(script, fmt.Sprintf("%s=%q", name, value))
		}
	}
	return script
}
