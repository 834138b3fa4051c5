package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

const applyWeb = "/v1/apply?namespace=production&set=web"

func manifest(kind, name string) string {
	return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\n"
}

// The policy is asked about the namespace of the query, and about each object's kind.
func TestApply_AsksPolicy(t *testing.T) {
	p := newAsked(func(i runnerapi.Intent) error {
		if len(i.Objects) > 0 && i.Objects[0].Kind == "Pod" {
			return runnerapi.PolicyDenied("", "no pods")
		}
		return nil
	})
	r := newRaw(t, governed(t, p))
	resp, answer := r.do(http.MethodPost, applyWeb, manifest("ConfigMap", "a")+"---\n"+manifest("Pod", "b"), "Content-Type", "application/yaml")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode, "%s", answer)
	asked := p.all()
	kinds := []string{}
	for _, i := range asked {
		assert.Equal(t, "production", i.Namespace)
		assert.Equal(t, runnerapi.Named, i.Access)
		for _, o := range i.Objects {
			kinds = append(kinds, o.Kind)
		}
	}
	assert.Subset(t, kinds, []string{"ConfigMap", "Pod"})

	// One namespace for the policy and another one for the call cannot be had.
	for _, query := range []string{
		"set=web&namespace=production&namespace=staging", "set=web&namespace=staging&namespace=production",
		"set=web&n%61mespace=staging&namespace=production", "set=web&namespace=production;namespace=staging", "set=web",
	} {
		before := len(p.all())
		resp, _ := r.do(http.MethodPost, "/v1/apply?"+query, manifest("ConfigMap", "a"), "Content-Type", "application/yaml")
		for _, i := range p.all()[before:] {
			if len(i.Objects) > 0 { // it was carried out
				assert.Equal(t, p.all()[before].Namespace, i.Namespace, query)
			}
		}
		if strings.Count(query, "namespace") == 0 {
			assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
		}
	}
}

func TestApply_RefusesContentType(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for media, want := range map[string]int{
		"application/yaml": 202, "text/yaml; charset=utf-8": 202, "application/x-yaml": 202,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "": 415,
	} {
		resp, answer := r.do(http.MethodPost, applyWeb, manifest("ConfigMap", "slow"), "Content-Type", media)
		assert.Equal(t, want, resp.StatusCode, "%s: %s", media, answer)
	}
	resp, answer := r.do(http.MethodPost, applyWeb, strings.Repeat("a", 50<<20), "Content-Type", "application/yaml")
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	assert.Contains(t, string(answer), "4194304 bytes")
}

// The record names the objects and has nothing of their content.
func TestApply_AuditsObjects(t *testing.T) {
	agent, log := watched(t, runnertest.AllowAll{})
	r := newRaw(t, agent)
	r.do(http.MethodPost, applyWeb+"&prune=false", manifest("Secret", "s")+"stringData: {secret: "+marked+"}\n", "Content-Type", "application/yaml")
	r.do(http.MethodPost, applyWeb+"&dryRun=true", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"spec":{"secret":"`+marked+`","key":"`+marked+`"}}`,
		"Content-Type", "application/json")
	records := log.take(t, 2)
	assert.JSONEq(t, `{"prune":"false","count":1,"objects":["Secret/production/s"]}`, string(records[0].Arguments))
	assert.JSONEq(t, `{"dryRun":"true","count":1,"objects":["Secret/production/s"]}`, string(records[1].Arguments))
	assert.Equal(t, "production", records[0].Namespace)
	assert.Equal(t, "web", records[0].Name)

	r.do(http.MethodPost, applyWeb, strings.Repeat(manifest("ConfigMap", strings.Repeat("a", 200))+"---\n", 100)+manifest("ConfigMap", "b"), "Content-Type", "application/yaml")
	long := log.take(t, 1)[0]
	assert.Contains(t, string(long.Arguments), `"shortened":true`)
	assert.Less(t, len(long.Arguments), 3<<10)
}

// The same manifests with the same key are refused for another set.
func TestApply_IdempotencyKeyOfSet(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	first, _ := r.do(http.MethodPost, applyWeb, manifest("ConfigMap", "a"), "Content-Type", "application/yaml", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusOK, first.StatusCode)
	again, _ := r.do(http.MethodPost, applyWeb, manifest("ConfigMap", "a"), "Content-Type", "application/yaml", "Idempotency-Key", "k1")
	assert.Equal(t, http.StatusOK, again.StatusCode)
	other, answer := r.do(http.MethodPost, "/v1/apply?namespace=production&set=other", manifest("ConfigMap", "a"), "Content-Type", "application/yaml", "Idempotency-Key", "k1")
	assert.Equal(t, http.StatusConflict, other.StatusCode, "%s", answer)
}
