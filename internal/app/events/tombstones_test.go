package events

import (
	"fmt"
	"strconv"
	"strings"
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

// TestTombstones_ForgetSharesByNamespace: all ended Apps share one ConfigMap. Were it full, no end
// could be announced.
func TestTombstones_ForgetSharesByNamespace(t *testing.T) {
	for name, image := range map[string]string{"many": "a", "large": strings.Repeat("<", 512)} { // six bytes each, as JSON
		data := map[types.UID]Event{}
		add := func(namespace string, n int, image string, at time.Time) {
			for i := range n {
				uid := types.UID(fmt.Sprintf("%s-%d", namespace, i))
				data[uid] = Event{ID: string(uid), Namespace: namespace, Name: "web", Image: image, Time: at, uid: uid}
			}
		}
		add("shop", 20, "web:1", time.Unix(1, 0))
		add("evil", 1500, image, time.Unix(2, 0))
		lost := forget(data)
		assert.Equal(t, 1520-lost, len(data), name)
		assert.LessOrEqual(t, len(data), maxTombstones, name)
		kept, bytes := 0, 0
		for _, ev := range data {
			bytes += ev.size()
			if ev.Namespace == "shop" {
				kept++
			}
		}
		assert.Equal(t, 20, kept, name)
		assert.LessOrEqual(t, bytes, maxTombstoneBytes, name)
		assert.Greater(t, len(data), 200, name)
	}
}
