package docs_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"

	"github.com/pipeops/pipeops-vm-agent/internal/condition"
)

// TestGitOps_ArgoScript runs the script of the page with the interpreter that Argo CD has.
func TestGitOps_ArgoScript(t *testing.T) {
	page, err := os.ReadFile("deployer/gitops.md")
	require.NoError(t, err)
	script := regexp.MustCompile("(?s)```lua\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, script)
	for _, c := range []struct {
		observed lua.LNumber
		progress condition.Progress
		reason   string
		want     string
	}{
		{-1, condition.Current, "Healthy", "Progressing"},
		{2, condition.Current, "Healthy", "Healthy"},
		{2, condition.Current, "Paused", "Suspended"},
		{2, condition.InProgress, "Progressing", "Progressing"},
		{2, condition.Failed, "CrashLoop", "Degraded"},
	} {
		vm := lua.NewState()
		defer vm.Close()
		table := func(fields map[string]lua.LValue) *lua.LTable {
			t := vm.NewTable()
			for name, value := range fields {
				t.RawSetString(name, value)
			}
			return t
		}
		conditions := vm.NewTable()
		for _, is := range condition.Summary(c.progress, c.reason, "its message") {
			conditions.Append(table(map[string]lua.LValue{
				"type": lua.LString(is.Type), "status": lua.LString(is.Status), "reason": lua.LString(is.Reason), "message": lua.LString(is.Message),
			}))
		}
		vm.SetGlobal("obj", table(map[string]lua.LValue{
			"metadata": table(map[string]lua.LValue{"generation": lua.LNumber(2)}),
			"status":   table(map[string]lua.LValue{"observedGeneration": c.observed, "conditions": conditions}),
		}))
		require.NoError(t, vm.DoString(string(script[1])))
		got := vm.Get(-1).(*lua.LTable)
		assert.Equal(t, c.want, got.RawGetString("status").String(), c.reason)
		assert.NotEmpty(t, got.RawGetString("message").String())
	}
}
