package quant

// Event is one piece of news of a run: progress, a fallback, a numeric finding. Events marked as findings also
// appear in the report, and Options.Strict turns fallbacks into errors.
type Event struct {
	Kind     string  `json:"kind"` // "stage", "progress", "finding" or "fallback"
	Stage    string  `json:"stage,omitempty"`
	Layer    int     `json:"layer"` // -1 outside blocks
	Tensor   string  `json:"tensor,omitempty"`
	Message  string  `json:"message,omitempty"`
	Count    int64   `json:"count,omitempty"`
	First    int64   `json:"first,omitempty"` // first index concerned
	Done     float64 `json:"done,omitempty"`  // fraction of the whole run, 0 … 1
	Seconds  float64 `json:"seconds,omitempty"`
	LeftSecs float64 `json:"left_seconds,omitempty"`
}

// The kinds of events.
const (
	EventStage    = "stage"
	EventProgress = "progress"
	EventFinding  = "finding"
	EventFallback = "fallback"
)
