package quant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safeio"
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
