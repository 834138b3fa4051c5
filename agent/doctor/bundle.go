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
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
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

// bundle collects what a support engineer needs.
type bundle struct {
	Options
	cluster *cluster
}

func newBundle(opts Options) *bundle {
	opts = opts.withDefaults()
	return &bundle{Options: opts, cluster: &cluster{opts}}
}

// WriteBundle writes what a support engineer needs into a .tar.gz that only its owner can read: the
// report, versions, the configuration, the agent's pods and its recent log. All text goes through
// the redactor.
func WriteBundle(ctx context.Context, file string, opts Options, report Report) error {
	b := newBundle(opts)
	parts, problems := b.collect(ctx, report)
	if len(problems) > 0 {
		parts = append(parts, part{"missing.txt", []byte(strings.Join(problems, "\n") + "\n")})
	}
	secrets := newRedactor(b.secrets())
	if err := atomicfile.Fill(file, func(f *os.File) error { return pack(f, parts, secrets, report.Time) }); err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	return nil
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
func (b *bundle) collect(ctx context.Context, report Report) (parts []part, problems []string) {
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
		"agent": b.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}, "", "  ")
	add("version.json", text, err)
	var config bytes.Buffer
	err = b.Config.Print(&config)
	add("configuration.txt", config.Bytes(), err)
	add("environment.txt", environment(), nil)

	logs, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	b.podParts(logs, add)
	serviceParts(logs, add)
	return parts, problems
}

func environment() []byte {
	var text bytes.Buffer
	for _, name := range append([]string{"GOMEMLIMIT", "NOTIFY_SOCKET"}, proxyVariables...) {
		if value := os.Getenv(name); value != "" {
			fmt.Fprintf(&text, "%s=%s\n", name, value)
		}
	}
	return text.Bytes()
}

// secrets returns the secrets of the configuration and the environment.
func (b *bundle) secrets() []string {
	list := []string{b.Config.Token, b.Config.K3sToken}
	if credential, _, pinned := strings.Cut(b.Config.Token, "."); pinned {
		list = append(list, credential)
	}
	if _, secret, ok := strings.Cut(strings.TrimPrefix(b.Config.Token, "pipeops_"), "_"); ok {
		list = append(list, secret)
	}
	if k := b.Kubernetes; k != nil {
		list = append(list, k.BearerToken, k.Password, string(k.KeyData))
	}
	for _, name := range proxyVariables {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.User != nil {
			password, _ := u.User.Password()
			list = append(list, password)
		}
	}
	return list
}
