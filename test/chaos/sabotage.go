package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// sabotagedValue is what no worker writes.
const sabotagedValue = "sabotaged"

// damage is one write that went wrong: the parts of the problems that the accountant has to
// find, all of them, and what makes the books balance again.
type damage struct {
	expected []string
	mend     func(context.Context)
}

// sabotage loses one write, doubles one and changes one, one after the other. The accountant must
// find each, for its own reason, and nothing before and after it.
func (c *chaos) sabotage(ctx context.Context) error {
	return run.Try(func() {
		c.finds(ctx, "before any sabotage", nil)
		for _, s := range []struct {
			how string
			do  func(context.Context) damage
		}{{"lost", c.loseSecret}, {"doubled", c.doubleRestart}, {"changed", c.changeConfigMap}} {
			d := s.do(ctx)
			c.finds(ctx, "after a write was "+s.how, d.expected)
			c.say("the accountant noticed a write that was %s: %s", s.how, strings.Join(d.expected, " and "))
			d.mend(ctx)
			c.finds(ctx, "after the write that was "+s.how+" is mended", nil)
		}
	})
}

// finds waits until the accountant finds the expected problems and no others. A change takes a
// moment to reach the Deployment and the audit log.
func (c *chaos) finds(ctx context.Context, when string, expected []string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	run.Check(eventually(ctx, fmt.Sprintf("%s, the accountant finds %d problems", when, len(expected)), func(ctx context.Context) {
		run.Check(c.auditor.read(ctx))
		run.Check(same(c.compare(ctx).problems, expected))
	}))
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
func (c *chaos) target(ctx context.Context, object string, fits func(name string) bool) string {
	held, commands := c.held(ctx), run.Must(c.ledger.Commands())
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
		run.Failf("there is no %s to sabotage: run longer", object)
	}
	return slices.Min(names)
}

// loseSecret deletes a Secret past the agent.
func (c *chaos) loseSecret(ctx context.Context) damage {
	name := c.target(ctx, "Secret", func(string) bool { return true })
	secrets := c.sys.Kube.Clientset.CoreV1().Secrets(namespace)
	was := run.Must(secrets.Get(ctx, name, metav1.GetOptions{}))
	run.Check(secrets.Delete(ctx, name, metav1.DeleteOptions{}))
	return damage{
		expected: []string{fmt.Sprintf("Secret %s: the cluster has nothing; commanded was value %s", name, was.Data[valueKey])},
		mend: func(ctx context.Context) {
			again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: was.Labels, Annotations: was.Annotations}, Type: was.Type, Data: was.Data}
			run.Must(secrets.Create(ctx, again, metav1.CreateOptions{}))
		},
	}
}

// doubleRestart restarts an App once more than the ledger records.
func (c *chaos) doubleRestart(ctx context.Context) damage {
	restarts := map[string]int{} // by App
	for _, command := range run.Must(c.ledger.Commands()) {
		if command.Kind == ledger.Restart {
			restarts[command.Name]++
		}
	}
	recorded := c.auditor.operations(ledger.Restart)
	// Were a record of an earlier one missing, the audit log would have room for one more.
	name := c.target(ctx, "App", func(name string) bool { return recorded[name] == restarts[name] })
	client := run.Must(c.workers[0].reach())
	twice := ledger.Command{Kind: ledger.Restart, Name: name, Key: "sabotage-" + name, Sent: time.Now(), Outcome: ledger.Acknowledged, Tries: 1}
	app := run.Must(client.Apps().Restart(ctx, runnerapi.Key{Namespace: namespace, Name: name}, runnerapi.WriteOptions{IdempotencyKey: twice.Key}))
	twice.Ended, twice.Answer = time.Now(), ledger.Answer{Generation: app.Generation, RestartedAt: app.RestartedAt}
	if twice.Answer.RestartedAt == "" {
		run.Failf("the answer to a restart has no time of the restart")
	}
	return damage{
		expected: []string{
			fmt.Sprintf("restarted at %q", twice.Answer.RestartedAt),
			fmt.Sprintf("the audit log tells of %d operations %s of %s; %d were sent", restarts[name]+1, ledger.Restart, name, restarts[name]),
		},
		mend: func(context.Context) { c.ledger.Add(twice) }, // the books miss it, and nothing else
	}
}

// changeConfigMap writes another value past the agent.
func (c *chaos) changeConfigMap(ctx context.Context) damage {
	name := c.target(ctx, "ConfigMap", func(string) bool { return true })
	configs := c.sys.Kube.Clientset.CoreV1().ConfigMaps(namespace)
	write := func(ctx context.Context, value string) (was string) {
		m := run.Must(configs.Get(ctx, name, metav1.GetOptions{}))
		was = m.Data[valueKey]
		m.Data[valueKey] = value
		run.Must(configs.Update(ctx, m, metav1.UpdateOptions{}))
		return was
	}
	was := write(ctx, sabotagedValue)
	return damage{
		expected: []string{fmt.Sprintf("ConfigMap %s: the cluster has value %s; commanded was value %s", name, sabotagedValue, was)},
		mend:     func(ctx context.Context) { write(ctx, was) },
	}
}
