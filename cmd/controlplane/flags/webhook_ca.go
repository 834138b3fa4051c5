package flags

import (
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

// WebhookCA is the flag for receivers in a private network.
type WebhookCA struct{ file string }

// Add adds the flag.
func (c *WebhookCA) Add(f *pflag.FlagSet) {
	f.StringVar(&c.file, "webhook-ca", "", "file with the CAs of webhook receivers, in addition to the machine's CAs; read again when it changes")
}

// TLS returns the CAs that a receiver's certificate may be of; nil means the machine's.
func (c *WebhookCA) TLS() (tlsfiles.Source, error) { return moreCAs("--webhook-ca", c.file) }

// moreCAs returns the CAs in a file in addition to the machine's. Without a file, it returns nil.
func moreCAs(name, file string) (tlsfiles.Source, error) {
	if file == "" {
		return nil, nil
	}
	files := &tlsfiles.Files{CA: file, CAName: name, Machines: true}
	_, err := files.Config()
	return files.Config, err
}
