package outbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
)

// settingSeal is the secret that marks the control plane's own messages. It recognizes them among
// the dead letters, to which every Runner may write.
const settingSeal = "seal"

// Seal reads the secret, and creates it if there is none.
func Seal(ctx context.Context, s *store.Store) (key []byte, err error) {
	err = s.Update(ctx, func(tx *store.Tx) error {
		settings, err := tx.Settings(ctx)
		if err != nil {
			return err
		}
		if text := settings[settingSeal]; text != "" {
			key, err = hex.DecodeString(text)
			return err
		}
		key = make([]byte, 32)
		_, _ = rand.Read(key) // it never fails
		return tx.PutSetting(ctx, settingSeal, hex.EncodeToString(key))
	})
	if err != nil {
		return nil, fmt.Errorf("the secret that marks announcements: %w", err)
	}
	return key, nil
}

// countDeadEvery is the maximum age of the number of dead letters in the readiness answer.
const countDeadEvery = 30 * time.Second

// deadCount holds the recent number of dead letters.
type deadCount struct {
	letters *publish.DeadLetters
	log     zerolog.Logger
	last    atomic.Int64 // the number plus one; 0 means unknown
}

func (d *deadCount) run(ctx context.Context) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, countDeadEvery)
		n, err := d.letters.Count(asking)
		cancel()
		before := d.last.Load()
		switch {
		case ctx.Err() != nil:
		case err != nil: // a missing broker is the publisher's to report
			d.last.Store(0)
		default:
			d.last.Store(int64(n) + 1)
			if before > 0 && int64(n)+1 > before {
				d.log.Warn().Int("dead_letters", n).Msg("announcements were dead-lettered; see `pipeops-controlplane dead-letter list`")
			}
		}
		retry.Wait(ctx, countDeadEvery)
	}
	return nil
}

// number returns the number of dead letters, if it is known.
func (d *deadCount) number() (int, bool) {
	n := d.last.Load()
	return int(n - 1), n > 0
}

// DescribeDead returns the text for /readyz.
func (b *Broker) DescribeDead() string {
	if b != nil {
		if n, known := b.dead.number(); known {
			return fmt.Sprintf("%d announcements were dead-lettered; `pipeops-controlplane dead-letter list` shows them", n)
		}
	}
	return "not known without a broker"
}

// DeadLetters returns how many dead letters wait for the operator, if that is known.
func (b *Broker) DeadLetters() (n int, known bool) {
	if b == nil {
		return 0, false
	}
	return b.dead.number()
}
