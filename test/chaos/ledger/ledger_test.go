package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// books are the commands on one App, its Secret and its ConfigMap, which balance
// with held.
func books() (commands []ledger.Command, held map[ledger.Target]ledger.Held) {
	commands = []ledger.Command{
		done(ledger.Deploy, "v1", 1, 1), done(ledger.Scale, "", 3, 2), restarted("noon", 2), done(ledger.PutSecret, "s1", 0, 0),
		done(ledger.Scale, "", 3, 2), done(ledger.Deploy, "v2", 2, 3), done(ledger.PutConfig, "c1", 0, 0), done(ledger.PutSecret, "s2", 0, 0),
	}
	held = map[ledger.Target]ledger.Held{
		target("App"):       {State: ledger.State{Exists: true, Value: "v2", Replicas: 2, Generation: 3, RestartedAt: "noon"}, Rollouts: 4},
		target("Secret"):    {State: ledger.State{Exists: true, Value: "s2"}},
		target("ConfigMap"): {State: ledger.State{Exists: true, Value: "c1"}},
	}
	return commands, held
}

func target(object string) ledger.Target { return ledger.Target{Object: object, Name: "web"} }

func done(kind ledger.Kind, value string, replicas int32, generation int64) ledger.Command {
	return ledger.Command{
		Kind: kind, Name: "web", Value: value, Replicas: replicas, Outcome: ledger.Acknowledged, Tries: 1,
		Answer: ledger.Answer{Generation: generation},
	}
}

func restarted(at string, generation int64) ledger.Command {
	c := done(ledger.Restart, "", 0, generation)
	c.Answer.RestartedAt = at
	return c
}

func unanswered(c ledger.Command) ledger.Command {
	c.Outcome, c.Answer = ledger.Unanswered, ledger.Answer{}
	return c
}

func notFound(c ledger.Command) ledger.Command {
	c.Outcome, c.NotFound, c.Answer = ledger.Refused, true, ledger.Answer{}
	return c
}

// TestEffects_FindsDeviations doctors the books that balance, each time in one place.
func TestEffects_FindsDeviations(t *testing.T) {
	assert.Empty(t, ledger.Effects(books()))
	app := func(value string, replicas int32, generation int64, restarted string, rollouts int64) *ledger.Held {
		return &ledger.Held{
			State:    ledger.State{Exists: true, Value: value, Replicas: replicas, Generation: generation, RestartedAt: restarted},
			Rollouts: rollouts,
		}
	}
	stray := ledger.Target{Object: "Secret", Name: "stray"}
	for name, doctor := range map[string]struct {
		of   ledger.Target
		held *ledger.Held // nil: it is gone
		want string
	}{
		"a lost deploy":                        {target("App"), app("v1", 3, 2, "noon", 3), "App web: the cluster has value v1"},
		"an App that is gone":                  {target("App"), nil, "the cluster has nothing"},
		"a write that was applied twice":       {target("App"), app("v2", 2, 5, "noon", 4), "generation 5"},
		"a restart that was carried out twice": {target("App"), app("v2", 2, 3, "one", 5), `restarted at "one"`},
		"a rollout that nobody commanded":      {target("App"), app("v2", 2, 3, "noon", 5), "rolled out 5 times"},
		"an old secret":                        {target("Secret"), app("s1", 0, 0, "", 0), "Secret web: the cluster has value s1"},
		"a lost config map":                    {target("ConfigMap"), nil, "ConfigMap web"},
		"what was never commanded":             {stray, app("", 0, 0, "", 0), "never commanded"},
	} {
		t.Run(name, func(t *testing.T) {
			commands, held := books()
			if delete(held, doctor.of); doctor.held != nil {
				held[doctor.of] = *doctor.held
			}
			problems := ledger.Effects(commands, held)
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], doctor.want)
		})
	}
}

// TestEffects_FindsWrongAnswers doctors what was answered.
func TestEffects_FindsWrongAnswers(t *testing.T) {
	deploy := done(ledger.Deploy, "v1", 1, 1)
	for name, c := range map[string]struct {
		second ledger.Command
		want   string
	}{
		"an App with a generation too many": {
			done(ledger.Deploy, "v2", 1, 3), "the answer to put-app of web (number 0, key , acknowledged with generation 3) fits nothing",
		},
		"an App that is new again": {
			done(ledger.Deploy, "v2", 1, 1), "the answer to put-app of web (number 0, key , acknowledged with generation 1) fits nothing",
		},
		"an App that was forgotten": {
			notFound(done(ledger.Scale, "", 2, 0)), "the answer to scale-app of web (number 0, key , refused) fits nothing",
		},
		"a command that was refused": {
			ledger.Command{Kind: ledger.Scale, Name: "web", Outcome: ledger.Refused, Error: "forbidden"}, "refused) was refused: forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := map[ledger.Target]ledger.Held{
				target("App"): {State: ledger.State{Exists: true, Value: "v1", Replicas: 1, Generation: 1}},
			}
			require.Empty(t, ledger.Effects([]ledger.Command{deploy}, held))
			problems := ledger.Effects([]ledger.Command{deploy, c.second}, held)
			require.NotEmpty(t, problems)
			assert.Contains(t, problems[0], c.want)
		})
	}
}

// TestEffects_Unanswered: what a command that was given up can have
// done: nothing, its effect, or its effect later than what was commanded after it;
// never anything else.
func TestEffects_Unanswered(t *testing.T) {
	first := done(ledger.Deploy, "v1", 1, 1)
	lost := unanswered(done(ledger.Deploy, "v2", 1, 0))
	is := func(value string, generation int64) ledger.Held {
		return ledger.Held{State: ledger.State{Exists: true, Value: value, Replicas: 1, Generation: generation}, Rollouts: generation}
	}
	for name, c := range map[string]struct {
		commands []ledger.Command
		held     ledger.Held
		balances bool
	}{
		"not carried out":                        {[]ledger.Command{first, lost}, is("v1", 1), true},
		"carried out":                            {[]ledger.Command{first, lost}, is("v2", 2), true},
		"carried out twice":                      {[]ledger.Command{first, lost}, is("v2", 3), false},
		"carried out, then another":              {[]ledger.Command{first, lost, done(ledger.Deploy, "v3", 1, 3)}, is("v3", 3), true},
		"not carried out, then another":          {[]ledger.Command{first, lost, done(ledger.Deploy, "v3", 1, 2)}, is("v3", 2), true},
		"carried out after another":              {[]ledger.Command{first, lost, done(ledger.Deploy, "v3", 1, 2)}, is("v2", 3), true},
		"carried out before and after another":   {[]ledger.Command{first, lost, done(ledger.Deploy, "v3", 1, 3)}, is("v2", 4), false},
		"the one before, after another":          {[]ledger.Command{first, lost, done(ledger.Deploy, "v3", 1, 2)}, is("v1", 3), false},
		"a delete of which nobody knows":         {[]ledger.Command{first, unanswered(done(ledger.Delete, "", 0, 0))}, ledger.Held{}, true},
		"an App that a late deploy brought back": {[]ledger.Command{first, lost, done(ledger.Delete, "", 0, 0)}, is("v2", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			problems := ledger.Effects(c.commands, map[ledger.Target]ledger.Held{target("App"): c.held})
			assert.Equal(t, c.balances, len(problems) == 0, "%v", problems)
		})
	}
}

func TestEffects_UnansweredRestart(t *testing.T) {
	commands := []ledger.Command{done(ledger.Deploy, "v1", 1, 1), unanswered(restarted("", 0))}
	is := ledger.State{Exists: true, Value: "v1", Replicas: 1, Generation: 1}
	assert.Empty(t, ledger.Effects(commands, map[ledger.Target]ledger.Held{target("App"): {State: is, Rollouts: 1}}))
	is.RestartedAt = "noon"
	assert.Empty(t, ledger.Effects(commands, map[ledger.Target]ledger.Held{target("App"): {State: is, Rollouts: 2}}))
	assert.NotEmpty(t, ledger.Effects(commands[:1], map[ledger.Target]ledger.Held{target("App"): {State: is, Rollouts: 2}}))
}
