package quant

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/exl2"
)

// probeBlob names the states in front of a layer.
func probeBlob(layer int) string { return fmt.Sprintf("states-%d", layer) }

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
	set := m.job.opts.Calib
	var block int64
	for i := range m.model.Blocks {
		block = max(block, blockMemory(m.model, &m.model.Blocks[i], NeedGram|NeedSequential))
	}
	threads := m.pool.Threads()
	return baseBytes + block + m.stateBytes() + int64(threads)*panelBytes + forward.ScratchBytes(m.model, threads, set.Windows, set.SeqLen)
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
	switch err := loadStates(m.out, probeBlob(first), m.states()); {
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
	if err := saveStates(m.out, probeBlob(layer+1), m.states()); err != nil {
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
		m.out.DropBlob(probeBlob(layer))
	}
	return nil
}

// saveStates makes matrices durable under one name, as little-endian float32 row by row.
func saveStates(out *formats.Job, name string, mats []kernel.Mat) error {
	b, err := out.NewBlob(sizeOf(mats))
	if err != nil {
		return err
	}
	defer b.Close()
	w := bufio.NewWriterSize(io.NewOffsetWriter(b, 0), pieceBytes)
	for _, m := range mats {
		buf := make([]byte, 4*m.Cols)
		for i := range m.Rows {
			for k, v := range m.Row(i) {
				binary.LittleEndian.PutUint32(buf[4*k:], math.Float32bits(v))
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return b.Commit(name)
}

// loadStates fills matrices of the same shapes; fs.ErrNotExist when they were not saved or are damaged.
func loadStates(out *formats.Job, name string, mats []kernel.Mat) error {
	b, err := out.OpenBlob(name)
	if err != nil {
		return err
	}
	defer b.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(b, 0, sizeOf(mats)), pieceBytes)
	for _, m := range mats {
		buf := make([]byte, 4*m.Cols)
		for i := range m.Rows {
			if _, err := io.ReadFull(in, buf); err != nil {
				return err
			}
			for k, row := 0, m.Row(i); k < len(row); k++ {
				row[k] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*k:]))
			}
		}
	}
	return nil
}

// sizeOf is the number of bytes that matrices take as float32.
func sizeOf(mats []kernel.Mat) (n int64) {
	for _, m := range mats {
		n += 4 * int64(m.Rows) * int64(m.Cols)
	}
	return n
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
