package kubernetes_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/kubernetes"
)

// The messages of each kind of stream are cut in every way.
func TestFrames_EndBetweenMessages(t *testing.T) {
	long := strings.Repeat("a", 70000)
	for name, stream := range map[string][]string{ // its messages
		"json":      {`{"type":"ADDED"}` + "\n", `{"type":"MODIFIED"}` + "\n"},
		"protobuf":  {"\x00\x00\x00\x05abcde", "\x00\x00\x00\x00", "\x00\x01\x11\x70" + long},
		"websocket": {"\x82\x04ping", "\x02\x01a\x80\x01b", "\x89\x00", "\x82\x7e\x01\x00" + long[:256], "\x82\x7f\x00\x00\x00\x00\x00\x01\x11\x70" + long},
	} {
		f := kubernetes.NewFrames(name)
		require.True(t, f.Whole(), name)
		for _, message := range stream {
			for i := range len(message) - 1 {
				f.Follow([]byte(message[i : i+1]))
				assert.False(t, f.Whole() && !strings.HasPrefix(message, "\x02"), "%s: %d of %.20q", name, i, message)
			}
			f.Follow([]byte(message[len(message)-1:]))
			assert.True(t, f.Whole(), "%s: %.20q", name, message)
		}
		whole := strings.Join(stream, "")
		f.Follow([]byte(whole))
		assert.True(t, f.Whole(), name)
		f.Follow([]byte(whole[:len(whole)-1]))
		assert.False(t, f.Whole(), name)
	}
	f := kubernetes.NewFrames("websocket")
	f.Follow([]byte("\x02\x01a\x89\x00"))
	assert.False(t, f.Whole(), "a ping does not end a message of several frames")
}

// Reads it as Kubernetes' clients do.
func TestFrames_ProtobufStatus(t *testing.T) {
	sent := kubernetes.NewFrames("protobuf").End(runnerapi.PolicyDenied("ask", "not any more"))
	require.EqualValues(t, len(sent)-4, binary.BigEndian.Uint32(sent))
	var event metav1.WatchEvent
	require.NoError(t, event.Unmarshal(sent[4:]))
	assert.Equal(t, "ERROR", event.Type)
	var object runtime.Unknown
	require.NoError(t, object.Unmarshal(event.Object.Raw[4:]))
	assert.Equal(t, "k8s\x00", string(event.Object.Raw[:4]))
	var status metav1.Status
	require.NoError(t, status.Unmarshal(object.Raw))
	assert.Equal(t, "PipeOps agent: not any more (fix: ask)", status.Message)
}
