package use

import (
	"os"
	"os/exec"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// TestMain opens inputs before the tests, of which Go's own log has nothing.
func TestMain(m *testing.M) {
	if err := inputs.Depend("early.txt"); err != nil {
		panic(err)
	}
	early, _ = exec.Command("cat", inputs.Path("early.txt")).Output()
	os.Exit(inputs.Main(m))
}

var early []byte

// TestUse does as tests do: it runs a program, a script, and what reads a file outside.
func TestUse(t *testing.T) {
	if string(early) != "hello!\n" {
		t.Errorf("TestMain has read %q", early)
	}
	greet, err := programs.Program{Package: "./greet"}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := inputs.Depend("script.sh", "../outside"); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{greet}, {inputs.Path("script.sh")}, {"cat", inputs.Path("../outside/chart/values.txt")}} {
		said, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		if err != nil || string(said) != "hello!\n" {
			t.Errorf("%s: %s %v", command, said, err)
		}
	}
}
