package testmain_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

type ends int

func (e ends) Run() int { return int(e) }

func TestMain_StopFailureFails(t *testing.T) {
	stopped := 0
	good := func() error { stopped++; return nil }
	bad := func() error { stopped++; return errors.New("it stays (this test wants that)") }
	assert.Equal(t, 0, testmain.Wrap(ends(0), good).Run())
	assert.Equal(t, 1, testmain.Wrap(ends(0), bad, good).Run())
	assert.Equal(t, 2, testmain.Wrap(ends(2), bad).Run())
	assert.Equal(t, 4, stopped, "all of them are stopped")
}
