package webcerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/caddyserver/certmagic"
	"github.com/libdns/cloudflare"
	"github.com/libdns/digitalocean"
	"github.com/libdns/hetzner/v2"
	"github.com/libdns/libdns"
	"github.com/libdns/rfc2136"
	"github.com/libdns/route53"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// The DNS providers that Updates knows.
const (
	RFC2136      = "rfc2136"
	Cloudflare   = "cloudflare"
	DigitalOcean = "digitalocean"
	Hetzner      = "hetzner"
	Route53      = "route53"
)

const (
	// maxKeyFile bounds the file of a key in bytes.
	maxKeyFile = 16 << 10
	// challengeTTL is of the TXT record. Providers refuse less than a minute.
	challengeTTL = 2 * time.Minute
)

// Updates is how the zone of the wildcard is changed, for the challenge DNS-01.
type Updates struct {
	// Domain is the domain whose wildcard gets a certificate; empty for none.
	Domain string
	// Provider is where the zone is: one of the constants above.
	Provider string
	// Server is the host:port of the primary DNS server of the zone, for RFC2136 alone.
	Server string
	// KeyFile has what the provider accepts updates by. It is read for each challenge. For RFC2136
	// it is the key that signs them (TSIG), in the form of tsig-keygen, for Route53 a credentials
	// file of the AWS CLI, and for the others an API token. Route53 without a file uses the
	// credentials that AWS gives the machine.
	KeyFile string
	// Resolvers are asked for the zone, host:port; none means the machine's.
	Resolvers []string
}

// Providers returns the names of the providers, in alphabetical order.
func Providers() []string { return slices.Sorted(maps.Keys(providers)) }

// providers make the client of a provider's API from the text of the key's file.
var providers = map[string]func(u Updates, key string) (certmagic.DNSProvider, error){
	RFC2136: func(u Updates, key string) (certmagic.DNSProvider, error) {
		name, algorithm, secret, err := parseKey(key)
		return &rfc2136.Provider{KeyName: name, KeyAlg: algorithm, Key: secret, Server: u.Server}, err
	},
	Cloudflare: func(_ Updates, key string) (certmagic.DNSProvider, error) {
		token, err := parseToken(key)
		return &cloudflare.Provider{APIToken: token}, err
	},
	DigitalOcean: func(_ Updates, key string) (certmagic.DNSProvider, error) {
		token, err := parseToken(key)
		return &digitalocean.Provider{APIToken: token}, err
	},
	Hetzner: func(_ Updates, key string) (certmagic.DNSProvider, error) {
		token, err := parseToken(key)
		return hetzner.New(token), err
	},
	Route53: func(u Updates, _ string) (certmagic.DNSProvider, error) { return u.route53() },
}

// defaultRegion is for a credentials file without one: Route 53 has one API for all regions.
const defaultRegion = "us-east-1"

func (u Updates) route53() (certmagic.DNSProvider, error) {
	if u.KeyFile == "" {
		return &route53.Provider{}, nil
	}
	profile, err := config.LoadSharedConfigProfile(context.Background(), "default", func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{u.KeyFile}, []string{}
	})
	if err != nil || !profile.Credentials.HasKeys() {
		return nil, errCredentialsForm // of err nothing is told: it may have lines of the file
	}
	c := profile.Credentials
	return &route53.Provider{
		Region: cmp.Or(profile.Region, defaultRegion), AccessKeyId: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
	}, nil
}

// resolvers returns the DNS servers that are asked for the zone; none means the machine's.
func (u Updates) resolvers() []string {
	if u.Provider == RFC2136 {
		return []string{u.Server}
	}
	return u.Resolvers
}

// Check returns what is wrong with the key's file.
func (u Updates) Check() error {
	_, err := updater{u}.provider()
	return err
}

// updater implements certmagic.DNSProvider.
type updater struct{ Updates }

// AppendRecords implements certmagic.DNSProvider.
func (u updater) AppendRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	p, err := u.provider()
	if err != nil {
		return nil, err
	}
	return p.AppendRecords(ctx, zone, records)
}

// DeleteRecords implements certmagic.DNSProvider.
func (u updater) DeleteRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	p, err := u.provider()
	if err != nil {
		return nil, err
	}
	return p.DeleteRecords(ctx, zone, records)
}

func (u updater) provider() (certmagic.DNSProvider, error) {
	text := ""
	if u.KeyFile != "" {
		read, err := boundedfile.Read(u.KeyFile, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("the key of DNS updates: %w", err)
		}
		text = string(read)
	}
	p, err := providers[u.Provider](u.Updates, text)
	if err != nil {
		return nil, fmt.Errorf("the key of DNS updates in %s: %w", u.KeyFile, err)
	}
	return p, nil
}

var (
	errKeyForm         = errors.New(`it is not of the form key "NAME" { algorithm hmac-sha256; secret "BASE64"; }; make one with tsig-keygen`)
	errTokenForm       = errors.New("it is not an API token in one line")
	errCredentialsForm = errors.New("it has no aws_access_key_id and aws_secret_access_key below [default]")
)

// parseToken returns the API token of a file.
func parseToken(text string) (string, error) {
	words := strings.Fields(text)
	if len(words) != 1 {
		return "", errTokenForm
	}
	return words[0], nil
}

// parseKey reads what tsig-keygen writes. The errors have nothing of it.
func parseKey(text string) (name, algorithm, secret string, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n;{}\"", r) })
	if len(words) != 6 || words[0] != "key" {
		return "", "", "", errKeyForm
	}
	values := map[string]string{words[2]: words[3], words[4]: words[5]}
	algorithm, secret = strings.ToLower(values["algorithm"]), values["secret"]
	if !strings.HasPrefix(algorithm, "hmac-sha") || secret == "" {
		return "", "", "", errKeyForm
	}
	return words[1], algorithm, secret, nil
}
