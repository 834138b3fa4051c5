package operatorapi

import (
	"context"
	"errors"
	"os/user"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

// Local carries out calls on a control plane's data in this process. Access to the data directory
// is its caller's right. The audit log names the user of the machine.
type Local struct {
	performer
	who  string
	stop context.CancelFunc
	done chan error
}

// NewLocal returns a target for the data that an Admin has opened. Close closes it.
func NewLocal(admin *administration.Admin, log zerolog.Logger) *Local {
	who := "local"
	if u, err := user.Current(); err == nil {
		who += "/" + u.Username
	}
	l := &Local{
		performer: performer{newRecorder(admin.Database(), "local", admin.Now, log), admin, log},
		who:       who, done: make(chan error, 1),
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	go func() { l.done <- l.recorder.log.Run(ctx) }()
	return l
}

func (l *Local) do(ctx context.Context, d *Description, in, _ any, run func(context.Context, *administration.Admin) error) error {
	r := newRecord(d, l.who, "", uuid.NewString(), l.now()) // the ID joins both records
	err := l.perform(ctx, d, in, r, run)
	recorded := err
	if known := refusal(err); known != nil {
		recorded = known
	}
	l.end(r, recorded)
	return err
}

// Close stores what waits for the audit log, and closes the data.
func (l *Local) Close() error {
	l.stop()
	return errors.Join(<-l.done, l.admin.Close())
}
