package events

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func FuzzDecodeTombstones(f *testing.F) {
	f.Add("uid", `{"id":"1","type":"app.removed","name":"web"}`)
	f.Add("", `{`)
	f.Fuzz(func(t *testing.T, uid, raw string) {
		for _, ev := range inOrder(decodeTombstones(map[string]string{uid: raw})) {
			if ev.ID == "" || ev.Type != Removed || string(ev.uid) != uid {
				t.Fatalf("%+v", ev)
			}
		}
	})
}

func TestTombstones_ForgetDropsOldest(t *testing.T) {
	data := decodeTombstones(nil)
	for i := range maxTombstones + 3 {
		ev := Event{ID: "x", Type: Removed, Time: time.Unix(int64(i), 0), uid: types.UID(strconv.Itoa(i))}
		data[ev.uid] = ev
	}
	assert.Equal(t, 3, forget(data))
	assert.Len(t, data, maxTombstones)
	assert.Equal(t, int64(3), inOrder(data)[0].Time.Unix())
}
