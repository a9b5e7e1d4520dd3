package quant

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
)

// MeasurementOrigin identifies what a measurement was made from.
type MeasurementOrigin struct{ Model, Calibration string }

// String is the form that measurement files hold.
func (o MeasurementOrigin) String() string { return o.Model + "; " + o.Calibration }

// MeasuredFrom identifies a model by its config and the content of its weight files, and the calibration windows.
func MeasuredFrom(ctx context.Context, src formats.Checkpoint, set *calib.Set) (MeasurementOrigin, error) {
	files, err := hashFiles(ctx, src.Meta().Files)
	if err != nil {
		return MeasurementOrigin{}, err
	}
	h := sha256.New()
	fmt.Fprintln(h, hashOf(src.Meta().Config))
	for _, f := range files {
		fmt.Fprintln(h, f.SHA256) // names and places do not matter
	}
	return MeasurementOrigin{"model " + hex.EncodeToString(h.Sum(nil)), "calibration " + calibrationKey(set)}, nil
}

// Check refuses a measurement of another model or another calibration text. ExLlamaV2's own files do not say what they
// were made from; their shapes were compared when they were read.
func (o MeasurementOrigin) Check(m *exl2.Measurement) error {
	model, calibration, ok := strings.Cut(m.Model, "; ")
	switch {
	case m.Model == "":
		return nil
	case !ok || model != o.Model:
		return safeio.Unsupportedf("the measurement belongs to another model")
	case calibration != o.Calibration:
		return safeio.Unsupportedf("the measurement was made with other calibration text: %s, this run has %s", calibration, o.Calibration)
	}
	return nil
}

// measuredState is what the journal keeps of a measured layer.
type measuredState struct {
	Slots []exl2.Slot        `json:"slots"`
	Found []exl2.Sensitivity `json:"found"` // what the layer's probes found so far
}

// keepIn makes the measurement a job of its own: file.partial holds a lock, a journal and the states in front of the next
// layer, as the work directory of an artifact does.
func (m *measurement) keepIn(ctx context.Context, file string, id MeasurementOrigin) error {
	o := m.job.opts
	describe := map[string]string{"version": o.Version, "what": "measurement for exl2", "model": id.Model, "calibration": id.Calibration, "nan": fmt.Sprint(o.NaNZero)}
	var err error
	m.out, err = formats.OpenJob(ctx, formats.JobOptions{Out: file, SingleFile: true, Key: jobKey(describe), Describe: describe,
		Plan: &container.Plan{}, Force: o.Force, Inputs: inputPaths(m.src), Scratch: 2 * m.stateBytes()})
	return err
}

// stateBytes is the most that the states in front of a layer take.
func (m *measurement) stateBytes() int64 {
	set := m.job.opts.Calib
	rows := int64(set.Windows)*int64(set.SeqLen) + exl2.ProbeBytes(m.decisions(), m.probeWindows()*set.SeqLen, 1)/4
	return 4 * rows * int64(m.model.Hidden)
}

// decisions counts the model's slots, each of which has a probe.
func (m *measurement) decisions() (n int) {
	for i := range m.model.Blocks {
		n += len(slotGroups(&m.model.Blocks[i]))
	}
	return n
}

// MeasurementMemory estimates the peak of resident bytes of MeasureEXL2.
func MeasurementMemory(model *arch.Model, o Options) int64 {
	m := &measurement{model: model, pool: newPool(o.Threads), job: &job{opts: &o}}
	return m.memory()
}

func (m *measurement) memory() int64 {
	const base = 40 << 20
	set := m.job.opts.Calib
	var block int64
	for i := range m.model.Blocks {
		block = max(block, blockMemory(m.model, &m.model.Blocks[i], NeedGram|NeedSequential))
	}
	threads := m.pool.Threads()
	return base + block + m.stateBytes() + int64(threads)*panelBytes + forward.ScratchBytes(m.model, threads, set.Windows, set.SeqLen)
}

// states lists the hidden states in front of the next layer.
func (m *measurement) states() []kernel.Mat { return append(m.probes.Hidden(), m.hidden) }

// resume takes over the layers that an earlier run measured and says how many they are. States that are damaged on disk
// cost the work, never the result.
func (m *measurement) resume() (first int, err error) {
	if m.out == nil {
		return 0, nil
	}
	var found []exl2.Sensitivity
	for name, state := range m.out.States() {
		if name != layerUnit(first) {
			break
		}
		var s measuredState
		if err := json.Unmarshal(state, &s); err != nil {
			return 0, fmt.Errorf("journal: %w", err)
		}
		m.slots, found = append(m.slots, s.Slots...), append(found, s.Found...)
		first++
	}
	if first == 0 {
		return first, nil
	}
	m.probes.Restore(found)
	switch err := loadStates(m.out, hiddenBlob(first), m.states()); {
	case err == nil:
		return first, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := m.out.Restart(); err != nil {
		return 0, err
	}
	m.job.event(Event{Kind: EventFinding, Layer: -1, Message: "the measured layers of the earlier run are damaged on disk: starting over"})
	return 0, m.start()
}

// finished makes a measured layer durable.
func (m *measurement) finished(layer int) error {
	if m.out == nil {
		return nil
	}
	if err := saveStates(m.out, hiddenBlob(layer+1), m.states()); err != nil {
		return err
	}
	groups := len(slotGroups(&m.model.Blocks[layer]))
	found := m.probes.Found()
	state, err := json.Marshal(measuredState{Slots: m.slots[len(m.slots)-groups:], Found: found[len(found)-groups:]})
	if err != nil {
		return err
	}
	if err := m.out.Finish(layerUnit(layer), nil, state); err != nil {
		return err
	}
	if layer > 0 {
		m.out.DropBlob(hiddenBlob(layer))
	}
	return nil
}

// publish gives the measurement its final name.
func (m *measurement) publish(ctx context.Context, file string, result *exl2.Measurement) error {
	if err := m.src.Meta().Unchanged(); err != nil {
		return err
	}
	return m.out.Publish(ctx, nil, func([]formats.FileSum) (map[string][]byte, error) {
		var text bytes.Buffer
		err := result.Write(&text)
		return map[string][]byte{filepath.Base(file): text.Bytes()}, err
	})
}
