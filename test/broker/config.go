package broker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The users of a broker.
const (
	// UserControlPlane may do everything with objects named pipeops.*, and read the management
	// page.
	UserControlPlane = "controlplane"
	// UserRunner may create, bind and read its own queues pipeops.runner.*, and dead-letter from
	// them. It cannot announce anything.
	UserRunner = "runner"
	// userAdmin creates virtual hosts. It may access nothing in them.
	userAdmin = "admin"
)

// tags are the rights of a user in the management API.
var tags = map[string][]string{UserControlPlane: {"monitoring"}, UserRunner: {}, userAdmin: {"administrator"}}

// permission is what a user may access, as regular expressions over the names of exchanges and
// queues.
type permission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

var permissions = []permission{
	{UserControlPlane, "/", `^pipeops\..*$`, `^pipeops\..*$`, `^pipeops\..*$`},
	// Declaring a queue with dead letters needs write access to the dead-letter exchange. Binding
	// one needs write access to the queue and read access to the exchange.
	{UserRunner, "/", `^pipeops\.runner\..*$`, `^pipeops\.(runner\..*|dead)$`, `^pipeops\.(runner\..*|agents)$`},
}

// writeConfig writes everything that the server reads at its start.
func (b *Broker) writeConfig() error {
	definitions, err := b.definitions()
	if err != nil {
		return err
	}
	files := map[string]string{
		"rabbitmq.conf":     b.serverConfig(),
		"definitions.json":  definitions,
		"enabled_plugins":   "[rabbitmq_management].\n",
		"rabbitmq-env.conf": "", // instead of the machine's own
		".erlang.cookie":    b.cookie,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) serverConfig() string {
	var c strings.Builder
	set := func(key string, value any) { _, _ = fmt.Fprintf(&c, "%s = %v\n", key, value) }

	set("listeners.tcp", "none")
	set("listeners.ssl.1", b.address())
	set("ssl_options.cacertfile", filepath.Join(b.dir, "ca.crt"))
	set("ssl_options.certfile", filepath.Join(b.dir, "server.crt"))
	set("ssl_options.keyfile", filepath.Join(b.dir, "server.key"))
	set("ssl_options.verify", "verify_none")
	set("ssl_options.versions.1", "tlsv1.3")
	set("ssl_options.versions.2", "tlsv1.2")
	set("management.tcp.ip", "127.0.0.1")
	set("management.tcp.port", b.managementPort)
	set("load_definitions", filepath.Join(b.dir, "definitions.json"))

	// A nearly full disk must not stop a test's broker, and the broker must not fill it: the log of
	// quorum queues takes 512 MB by default.
	set("disk_free_limit.absolute", "50MB")
	set("vm_memory_high_watermark.absolute", "512MB")
	set("raft.wal_max_size_bytes", 32<<20)
	set("log.file.level", "info")
	return c.String()
}

// definitions creates the users at every start. With definitions, RabbitMQ creates no guest user.
func (b *Broker) definitions() (string, error) {
	type user struct {
		Name string   `json:"name"`
		Hash string   `json:"password_hash"`
		Algo string   `json:"hashing_algorithm"`
		Tags []string `json:"tags"`
	}
	var users []user
	for name, password := range b.passwords {
		hash, err := hashPassword(password)
		if err != nil {
			return "", err
		}
		users = append(users, user{Name: name, Hash: hash, Algo: "rabbit_password_hashing_sha256", Tags: tags[name]})
	}
	body, err := json.MarshalIndent(map[string]any{
		"vhosts":      []map[string]string{{"name": "/"}},
		"users":       users,
		"permissions": permissions,
	}, "", "  ")
	return string(body), err
}

// hashPassword returns RabbitMQ's hash: four bytes of salt, then SHA-256 of salt and password.
func hashPassword(password string) (string, error) {
	salt := make([]byte, 4)
	if _, err := rand.Read(salt); err != nil {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat(salt, []byte(password)))
	return base64.StdEncoding.EncodeToString(slices.Concat(salt, sum[:])), nil
}
