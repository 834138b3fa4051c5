package announce

import (
	"encoding/json"
	"testing"
)

func FuzzReadSnapshot(f *testing.F) {
	body, err := json.Marshal(Snapshot{Agents: []Agent{at("a1", 1, StateOnline)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"agents":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		agents, err := parseSnapshot(body)
		if err != nil {
			return
		}
		if _, err := json.Marshal(agents); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzReadTimeline(f *testing.F) {
	f.Add([]byte(`{"events":[],"more":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b TimelineBody
		if json.Unmarshal(body, &b) != nil {
			return
		}
		page, err := b.decode()
		if err != nil {
			return
		}
		unknown := 0
		for _, raw := range b.Events {
			if _, err := Decode(raw); err != nil {
				unknown++
			}
		}
		if len(page.Events)+unknown != len(b.Events) {
			t.Error("events were lost")
		}
	})
}
