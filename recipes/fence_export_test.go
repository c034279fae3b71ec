package recipes

// OpenFileHighWaterSteps is OpenFileHighWater with a function that is called before each
// step of a write; an error that it returns is the step's.
var OpenFileHighWaterSteps = openFileHighWater
