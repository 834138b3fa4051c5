package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// bundleTimeout bounds the collecting of each part.
const bundleTimeout = 20 * time.Second

// maxPart bounds one part of a bundle: the end of a long log is what matters.
const maxPart = 2 << 20

// proxyVariables are shown with their passwords masked.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"}

// part is one file of a bundle.
type part struct {
	name string
	text []byte
}

// WriteBundle writes what a support engineer needs into a .tar.gz that only its owner can read: the
// report, versions, the configuration, the agent's pods and its recent log. All text goes through
// the redactor.
func WriteBundle(ctx context.Context, file string, opts Options, report Report) (err error) {
	e := newExam(opts)
	parts, problems := e.collect(ctx, report)
	if len(problems) > 0 {
		parts = append(parts, part{"missing.txt", []byte(strings.Join(problems, "\n") + "\n")})
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".bundle-*") // 0600
	if err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	if err := errors.Join(pack(out, parts, newRedactor(e.secrets()), report.Time), out.Close()); err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	return os.Rename(out.Name(), file)
}

func pack(w io.Writer, parts []part, secrets redactor, at time.Time) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, p := range parts {
		text := tail([]byte(secrets.text(string(p.text)))) // in this order: a secret that is cut in two has no shape
		header := &tar.Header{Name: "pipeops-agent-support/" + p.name, Mode: 0o600, Size: int64(len(text)), ModTime: at.Truncate(time.Second)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

// tail returns the last whole lines of a long text.
func tail(text []byte) []byte {
	if len(text) <= maxPart {
		return text
	}
	text = text[len(text)-maxPart:]
	return text[bytes.IndexByte(text, '\n')+1:]
}

// collect gathers the parts and returns what was not available.
func (e *exam) collect(ctx context.Context, report Report) (parts []part, problems []string) {
	add := func(name string, text []byte, err error) {
		if err != nil {
			problems = append(problems, name+": "+err.Error())
			return
		}
		parts = append(parts, part{name, text})
	}
	text, err := json.MarshalIndent(report, "", "  ")
	add("doctor.json", text, err)
	text, err = json.MarshalIndent(map[string]string{
		"agent": e.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}, "", "  ")
	add("version.json", text, err)
	var config bytes.Buffer
	err = e.Config.Print(&config)
	add("configuration.txt", config.Bytes(), err)
	add("environment.txt", e.environment(), nil)

	logs, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	e.podParts(logs, add)
	e.serviceParts(logs, add)
	return parts, problems
}

func (e *exam) environment() []byte {
	var b bytes.Buffer
	for _, name := range append([]string{"GOMEMLIMIT", "NOTIFY_SOCKET"}, proxyVariables...) {
		if value := e.getenv(name); value != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, value)
		}
	}
	return b.Bytes()
}
