package attackers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	canaryName = "canary"
	payroll    = "payroll" // a namespace that is not the agent's
)

// canaries are values of Secrets, by where they are, that no attacker may receive.
var canaries = map[string]string{}

// hideCanaries makes a Secret in a namespace of another team, in the agent's own, and in the one
// that the agent manages. The agent's own key counts, too.
func hideCanaries(ctx context.Context) error {
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: payroll}}
	if err := sys.Kube.Create(ctx, team); err != nil {
		return err
	}
	for _, namespace := range []string{payroll, agentSpace, production} {
		value := "canary-of-" + namespace + "-" + rand.Text()
		canaries["Secret "+namespace+"/"+canaryName] = value
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: canaryName}, StringData: map[string]string{"value": value}}
		if err := sys.Kube.Create(ctx, secret); err != nil {
			return err
		}
	}
	identity := &corev1.Secret{}
	if err := sys.Kube.Get(ctx, client.ObjectKey{Namespace: agentSpace, Name: "pipeops-agent-identity"}, identity); err != nil {
		return err
	}
	for name, value := range identity.Data {
		if key := privateKey(value); key != "" {
			canaries["the agent's key, in "+name] = key
		}
	}
	if len(canaries) != 4 {
		return fmt.Errorf("the agent's identity has no private key that can be looked for: %d canaries", len(canaries))
	}
	return nil
}

// privateKey returns a line of a private key in PEM, which may be within JSON; empty if there is
// none.
func privateKey(text []byte) string {
	plain := bytes.ReplaceAll(text, []byte(`\n`), []byte("\n"))
	from := bytes.Index(plain, []byte("-----BEGIN PRIVATE KEY"))
	if from < 0 {
		return ""
	}
	block, _ := pem.Decode(plain[from:])
	if block == nil {
		return ""
	}
	lines := strings.Split(string(pem.EncodeToMemory(block)), "\n")
	return lines[2] // the first is the same in every key of its kind
}

// disguises returns a value as it is, and as it looks in base64 wherever it begins there.
func disguises(value string) []string {
	out := []string{value}
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + value))
		from, to := (shift*4+2)/3+1, len(text)-4
		out = append(out, text[from:to], strings.NewReplacer("+", "-", "/", "_").Replace(text[from:to]))
	}
	return out
}

// ear hears all that an attacker receives, and notes where it heard a Secret's value.
type ear struct {
	except string // a canary that the attacker may know

	mu     sync.Mutex
	heard  []string
	amount int64
}

// hear searches what came. An answer that comes in pieces has to be given as a whole.
func (e *ear) hear(from string, text []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.amount += int64(len(text))
	for place, value := range canaries {
		if place == e.except {
			continue
		}
		for _, disguise := range disguises(value) {
			if bytes.Contains(text, []byte(disguise)) {
				e.heard = append(e.heard, from+": "+place)
			}
		}
	}
}
