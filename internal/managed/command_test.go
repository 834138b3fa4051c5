package managed_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

func TestAnObjectRemembersItsLastCommands(t *testing.T) {
	o := &metav1.ObjectMeta{}
	assert.True(t, managed.Note(o, ""), "nobody would know it again")
	assert.Empty(t, o.Annotations)
	assert.True(t, managed.Note(o, "first"))
	assert.False(t, managed.Note(o, "first"))
	for i := range 15 {
		assert.True(t, managed.Note(o, strconv.Itoa(i)))
	}
	assert.False(t, managed.Note(o, "first"), "it is one of the last")
	assert.True(t, managed.Note(o, "one more"))
	assert.Len(t, strings.Fields(o.Annotations[managed.Commands]), 16)
	assert.True(t, managed.Note(o, "first"), "it is forgotten")
}
