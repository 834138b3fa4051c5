package monitoring

import "time"

// Patience sets how long components may take.
func (r *Reader) Patience(d time.Duration) { r.patience = d }

// Quoted is quoted, for its fuzz test.
var Quoted = quoted
