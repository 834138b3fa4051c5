package helm

import (
	"encoding/json"
	"io"
	"log"
	"sync"

	chartutil "helm.sh/helm/v4/pkg/chart/common/util"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// values are what a chart is rendered with.
type values struct {
	given    map[string]any // over the defaults
	defaults map[string]any // in place of the chart's; nil for those
}

// values returns the command's values. An upgrade may take those of the release, as
// action.Upgrade's reuseValues does.
func (p *put) values() (values, error) {
	v := values{given: copied(p.spec.Values)}
	now := p.current()
	if now == nil || p.installs() || !p.spec.ReuseValues && !p.spec.ResetThenReuseValues {
		return v, nil
	}
	had, err := one(p.store.Driver, *now)
	if err != nil {
		return v, err
	}
	quietly(func() {
		if p.spec.ReuseValues {
			v.defaults, err = chartutil.CoalesceValues(had.Chart, had.Config)
		}
		v.given = chartutil.CoalesceTables(v.given, copied(had.Config))
	})
	if err != nil { // not quoted: it may have a value
		err = problem.Errorf(problem.Invalid, "deploy without reuseValues", "the values of revision %d do not fit its chart", had.Version).WithField("reuseValues")
	}
	return v, err
}

var quiet sync.Mutex

// quietly drops what the log package gets meanwhile: Helm warns there, with the values themselves.
func quietly(do func()) {
	quiet.Lock()
	defer quiet.Unlock()
	defer log.SetOutput(log.Writer())
	log.SetOutput(io.Discard)
	do()
}

// json returns the values and the defaults in JSON; without defaults, the second one is empty.
func (v values) json() (given, defaults string, err error) {
	text, err := json.Marshal(v.given)
	if err != nil || v.defaults == nil {
		return string(text), "", err
	}
	others, err := json.Marshal(v.defaults)
	return string(text), string(others), err
}

// copied returns a deep copy: rendering changes values.
func copied(values map[string]any) map[string]any {
	out, ok := deepCopy(values).(map[string]any)
	if !ok || out == nil {
		return map[string]any{}
	}
	return out
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return nil
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = deepCopy(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = deepCopy(e)
		}
		return out
	}
	return v
}
