"""Health check of the embedded server: exit code 0 if the given address answers SERVING."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = health_pb2_grpc.HealthStub(channel)
    reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
sys.exit(reply.status != health_pb2.HealthCheckResponse.SERVING)
