package command

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// fill puts text into every string below a value.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
	}
}

// TestOutput_HidesControlCharacters fills every field of an agent and of a registration: an earlier
// control plane may have stored anything.
func TestOutput_HidesControlCharacters(t *testing.T) {
	const text = "x\x1b[2K\u009b\u202e\u2028\xff"
	var agent announce.Agent
	var waiting operatorapi.Registration
	var dependant administration.Dependant
	fill(reflect.ValueOf(&agent).Elem(), text)
	fill(reflect.ValueOf(&waiting).Elem(), text)
	fill(reflect.ValueOf(&dependant).Elem(), text)
	var screen bytes.Buffer
	waitingTable(&screen, []operatorapi.Registration{waiting})
	cloneTable(&screen, []announce.Agent{agent})
	a := &app{streams: streams{out: &screen, err: &screen}}
	a.sayNotReady([]administration.Dependant{dependant})
	a.say("agent %s (%s) has %s", agent.Name, agent.ID, cli.Labels(agent.Labels))
	for _, format := range []string{"json", "yaml"} {
		out := cli.Output{Format: format}
		require.NoError(t, out.Write(&screen, agent, nil))
		require.NoError(t, out.Write(&screen, waiting, nil))
	}
	shown := strings.NewReplacer("\n", "", "\t", "").Replace(screen.String())
	assert.False(t, strings.ContainsFunc(shown, printable.Hidden), "%q", shown)
	assert.Contains(t, shown, "x [2K")
}
