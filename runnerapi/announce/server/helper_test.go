package server

import "time"

var noon = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)
