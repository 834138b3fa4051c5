package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// sabotagedValue is what no worker writes.
const sabotagedValue = "sabotaged"

// damage is one write that went wrong: the parts of the problems that the accountant has to
// find, all of them, and what makes the books balance again.
type damage struct {
	expected []string
	mend     func(context.Context) error
}

// sabotage loses one write, doubles one and changes one, one after the other. The accountant must
// find each, for its own reason, and nothing before and after it.
func (c *chaos) sabotage(ctx context.Context) error {
	if err := c.finds(ctx, nil); err != nil {
		return fmt.Errorf("before any sabotage: %w", err)
	}
	for _, s := range []struct {
		how string
		do  func(context.Context) (damage, error)
	}{{"lost", c.loseSecret}, {"doubled", c.doubleRestart}, {"changed", c.changeConfigMap}} {
		d, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("sabotage: a write that is %s: %w", s.how, err)
		}
		if err := c.finds(ctx, d.expected); err != nil {
			return fmt.Errorf("the accountant does not notice a write that was %s: %w", s.how, err)
		}
		c.say("the accountant noticed a write that was %s: %s", s.how, strings.Join(d.expected, " and "))
		if err := d.mend(ctx); err != nil {
			return fmt.Errorf("mend a write that was %s: %w", s.how, err)
		}
		if err := c.finds(ctx, nil); err != nil {
			return fmt.Errorf("the write that was %s is mended: %w", s.how, err)
		}
	}
	return nil
}

// finds waits until the accountant finds the expected problems and no others. A change takes a
// moment to reach the Deployment and the audit log.
func (c *chaos) finds(ctx context.Context, expected []string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return harness.Eventually(ctx, fmt.Sprintf("the accountant finds %d problems", len(expected)), func(ctx context.Context) error {
		if err := c.auditor.read(ctx); err != nil {
			return err
		}
		b, err := c.compare(ctx)
		if err != nil {
			return err
		}
		return same(b.problems, expected)
	})
}

// same returns an error unless each problem contains the expected text of its place, in any order.
func same(problems, expected []string) error {
	left := slices.Clone(problems)
	for _, text := range expected {
		at := slices.IndexFunc(left, func(p string) bool { return strings.Contains(p, text) })
		if at < 0 {
			return fmt.Errorf("no problem with %q among %q", text, problems)
		}
		left = slices.Delete(left, at, at+1)
	}
	if len(left) > 0 {
		return fmt.Errorf("not expected: %q", left)
	}
	return nil
}

// target returns an object of this kind that the cluster holds, that fits, and whose commands were
// all answered: a command without an answer could explain what the sabotage does.
func (c *chaos) target(ctx context.Context, object string, fits func(name string) bool) (string, error) {
	held, err := c.held(ctx)
	if err != nil {
		return "", err
	}
	commands, err := c.ledger.Commands()
	if err != nil {
		return "", err
	}
	for i := range commands {
		if commands[i].Outcome == ledger.Unanswered {
			delete(held, commands[i].Target())
		}
	}
	var names []string
	for t := range held {
		if t.Object == object && fits(t.Name) {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("there is no %s to sabotage: run longer", object)
	}
	return slices.Min(names), nil
}

// loseSecret deletes a Secret past the agent.
func (c *chaos) loseSecret(ctx context.Context) (damage, error) {
	name, err := c.target(ctx, "Secret", func(string) bool { return true })
	if err != nil {
		return damage{}, err
	}
	secrets := c.sys.Kube.Clientset.CoreV1().Secrets(namespace)
	was, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return damage{}, err
	}
	return damage{
		expected: []string{fmt.Sprintf("Secret %s: the cluster has nothing; commanded was value %s", name, was.Data[valueKey])},
		mend: func(ctx context.Context) error {
			again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: was.Labels, Annotations: was.Annotations}, Type: was.Type, Data: was.Data}
			_, err := secrets.Create(ctx, again, metav1.CreateOptions{})
			return err
		},
	}, secrets.Delete(ctx, name, metav1.DeleteOptions{})
}

// doubleRestart restarts an App once more than the ledger records.
func (c *chaos) doubleRestart(ctx context.Context) (damage, error) {
	commands, err := c.ledger.Commands()
	if err != nil {
		return damage{}, err
	}
	restarts := map[string]int{} // by App
	for i := range commands {
		if commands[i].Kind == ledger.Restart {
			restarts[commands[i].Name]++
		}
	}
	recorded := c.auditor.operations(ledger.Restart)
	// Were a record of an earlier one missing, the audit log would have room for one more.
	name, err := c.target(ctx, "App", func(name string) bool { return recorded[name] == restarts[name] })
	if err != nil {
		return damage{}, err
	}
	client, err := c.workers[0].reach()
	if err != nil {
		return damage{}, err
	}
	twice := ledger.Command{Kind: ledger.Restart, Name: name, Key: "sabotage-" + name, Sent: time.Now(), Outcome: ledger.Acknowledged, Tries: 1}
	app, err := client.Apps().Restart(ctx, runnerapi.Key{Namespace: namespace, Name: name}, runnerapi.WriteOptions{IdempotencyKey: twice.Key})
	if err != nil {
		return damage{}, err
	}
	twice.Ended, twice.Answer = time.Now(), ledger.Answer{Generation: app.Generation, RestartedAt: app.RestartedAt}
	if twice.Answer.RestartedAt == "" {
		return damage{}, errors.New("the answer to a restart has no time of the restart")
	}
	return damage{
		expected: []string{
			fmt.Sprintf("restarted at %q", twice.Answer.RestartedAt),
			fmt.Sprintf("the audit log tells of %d operations %s of %s; %d were sent", restarts[name]+1, ledger.Restart, name, restarts[name]),
		},
		mend: func(context.Context) error { c.ledger.Add(twice); return nil }, // the books miss it, and nothing else
	}, nil
}

// changeConfigMap writes another value past the agent.
func (c *chaos) changeConfigMap(ctx context.Context) (damage, error) {
	name, err := c.target(ctx, "ConfigMap", func(string) bool { return true })
	if err != nil {
		return damage{}, err
	}
	configs := c.sys.Kube.Clientset.CoreV1().ConfigMaps(namespace)
	write := func(ctx context.Context, value string) (was string, err error) {
		m, err := configs.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		was = m.Data[valueKey]
		m.Data[valueKey] = value
		_, err = configs.Update(ctx, m, metav1.UpdateOptions{})
		return was, err
	}
	was, err := write(ctx, sabotagedValue)
	return damage{
		expected: []string{fmt.Sprintf("ConfigMap %s: the cluster has value %s; commanded was value %s", name, sabotagedValue, was)},
		mend:     func(ctx context.Context) error { _, err := write(ctx, was); return err },
	}, err
}
