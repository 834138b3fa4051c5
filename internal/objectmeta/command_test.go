package objectmeta_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

func TestCommands_KeepsLast(t *testing.T) {
	o := &metav1.ObjectMeta{}
	assert.True(t, objectmeta.RecordCommand(o, ""), "the agent would not recognise it")
	assert.Empty(t, o.Annotations)
	assert.True(t, objectmeta.RecordCommand(o, "first"))
	assert.False(t, objectmeta.RecordCommand(o, "first"))
	for i := range 15 {
		assert.True(t, objectmeta.RecordCommand(o, strconv.Itoa(i)))
	}
	assert.False(t, objectmeta.RecordCommand(o, "first"), "it is one of the last")
	assert.True(t, objectmeta.RecordCommand(o, "one more"))
	assert.Len(t, strings.Fields(o.Annotations[objectmeta.Commands]), 16)
	assert.True(t, objectmeta.RecordCommand(o, "first"), "it is forgotten")
}
