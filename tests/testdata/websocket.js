// Gives an older Node the browser's WebSocket, from the package ws: node -r this-file.
globalThis.WebSocket = require("ws");
