package monitoring

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// sample is a value at a time. Prometheus writes it as [1435781430.781, "1.5"].
type sample struct {
	at    float64 // seconds since 1970
	value float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *sample) UnmarshalJSON(text []byte) error {
	var value string
	pair := []any{&s.at, &value}
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a sample has %d parts", len(pair))
	}
	var err error
	s.value, err = strconv.ParseFloat(value, 64)
	return err
}
