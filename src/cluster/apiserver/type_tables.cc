// The shapes of the built-in types (kubernetes-api.md Appendix A): one line a message.
//
//   NAME: FIELD, FIELD, …        FIELD = NUMBER NAME[MARK][:TYPE]
// MARK: [] list, replaced whole; [k] list merged by key k ([a+b]: server-side apply uses both, strategic
// merge the first; a trailing ! asks for retainKeys); [=] set of texts; {} map; {!} map that is owned whole;
// a lone ! marks a struct with retainKeys. TYPE: none text, s1 text that stays when empty, i integer, i0
// integer left out when zero, b and b0 likewise, x bytes, else a message. NAME '-': the fields stand in the
// parent's own JSON. A leading ! before the message's name: server-side apply owns it whole.
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

// clang-format off
const std::vector<std::pair<std::string_view, std::string_view>>& type_tables() {
  static const std::vector<std::pair<std::string_view, std::string_view>> tables = {
{"meta", R"table(
Condition: 1 type, 2 status, 3 observedGeneration:i0, 4 lastTransitionTime:Time, 5 reason:s1, 6 message:s1
DeleteOptions: 1 gracePeriodSeconds:i, 2 preconditions:Preconditions, 3 orphanDependents:b,
  4 propagationPolicy, 5 dryRun[], 6 ignoreStoreReadErrorWithClusterBreakingPotential:b
FieldSelectorRequirement: 1 key, 2 operator, 3 values[]
FieldsV1: 1 Raw:x
!LabelSelector: 1 matchLabels{}, 2 matchExpressions[]:LabelSelectorRequirement
LabelSelectorRequirement: 1 key:s1, 2 operator:s1, 3 values[]
ManagedFieldsEntry: 1 manager, 2 operation, 3 apiVersion, 4 time:Time, 6 fieldsType, 7 fieldsV1:FieldsV1,
  8 subresource
MicroTime: 1 seconds:i, 2 nanos:i
ObjectMeta: 1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, 7 generation:i0,
  8 creationTimestamp:Time, 9 deletionTimestamp:Time, 10 deletionGracePeriodSeconds:i, 11 labels{},
  12 annotations{}, 13 ownerReferences[uid]:OwnerReference, 14 finalizers[=],
  17 managedFields[]:ManagedFieldsEntry
OwnerReference: 1 kind:s1, 3 name:s1, 4 uid:s1, 5 apiVersion:s1, 6 controller:b, 7 blockOwnerDeletion:b
Preconditions: 1 uid, 2 resourceVersion
Time: 1 seconds:i, 2 nanos:i
)table"},
{"runtime", R"table(
RawExtension: 1 raw:x
TypeMeta: 1 apiVersion, 2 kind
Unknown: 1 typeMeta:TypeMeta, 2 raw:x, 3 contentEncoding, 4 contentType
)table"},
{"resource", R"table(
Quantity: 1 string
)table"},
{"intstr", R"table(
IntOrString: 1 type:i, 2 intVal:i, 3 strVal
)table"},
{"core", R"table(
ResourceQuota: 1 metadata:ObjectMeta, 2 spec:ResourceQuotaSpec, 3 status:ResourceQuotaStatus
ResourceQuotaSpec: 1 hard{}:Quantity, 2 scopes[], 3 scopeSelector:ScopeSelector
ResourceQuotaStatus: 1 hard{}:Quantity, 2 used{}:Quantity
ScopeSelector: 1 matchExpressions[]:ScopedResourceSelectorRequirement
ScopedResourceSelectorRequirement: 1 scopeName, 2 operator, 3 values[]
Affinity: 1 nodeAffinity:NodeAffinity, 2 podAffinity:PodAffinity, 3 podAntiAffinity:PodAntiAffinity
AppArmorProfile: 1 type, 2 localhostProfile
Binding: 1 metadata:ObjectMeta, 2 target:ObjectReference
CSIVolumeSource: 1 driver, 2 readOnly:b, 3 fsType, 4 volumeAttributes{},
  5 nodePublishSecretRef:LocalObjectReference
Capabilities: 1 add[], 2 drop[]
ConfigMap: 1 metadata:ObjectMeta, 2 data{}, 3 binaryData{}:x, 4 immutable:b
ConfigMapEnvSource: 1 -:LocalObjectReference, 2 optional:b
!ConfigMapKeySelector: 1 -:LocalObjectReference, 2 key, 3 optional:b
ConfigMapProjection: 1 -:LocalObjectReference, 2 items[]:KeyToPath, 4 optional:b
ConfigMapVolumeSource: 1 -:LocalObjectReference, 2 items[]:KeyToPath, 3 defaultMode:i, 4 optional:b,
  5 defaultUser:i
Container: 1 name:s1, 2 image, 3 command[], 4 args[], 5 workingDir,
  6 ports[containerPort+protocol]:ContainerPort, 7 env[name]:EnvVar, 8 resources:ResourceRequirements,
  9 volumeMounts[mountPath]:VolumeMount, 10 livenessProbe:Probe, 11 readinessProbe:Probe,
  12 lifecycle:Lifecycle, 13 terminationMessagePath, 14 imagePullPolicy, 15 securityContext:SecurityContext,
  16 stdin:b0, 17 stdinOnce:b0, 18 tty:b0, 19 envFrom[]:EnvFromSource, 20 terminationMessagePolicy,
  21 volumeDevices[devicePath]:VolumeDevice, 22 startupProbe:Probe, 23 resizePolicy[]:ContainerResizePolicy,
  24 restartPolicy, 25 restartPolicyRules[]:ContainerRestartRule
ContainerExtendedResourceRequest: 1 containerName, 2 resourceName, 3 requestName
ContainerImage: 1 names[], 2 sizeBytes:i0
ContainerPort: 1 name, 2 hostPort:i0, 3 containerPort:i, 4 protocol, 5 hostIP
ContainerResizePolicy: 1 resourceName, 2 restartPolicy
ContainerRestartRule: 1 action, 2 exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: 1 operator, 2 values[]:i
ContainerState: 1 waiting:ContainerStateWaiting, 2 running:ContainerStateRunning,
  3 terminated:ContainerStateTerminated
ContainerStateRunning: 1 startedAt:Time
ContainerStateTerminated: 1 exitCode:i, 2 signal:i0, 3 reason, 4 message, 5 startedAt:Time,
  6 finishedAt:Time, 7 containerID
ContainerStateWaiting: 1 reason, 2 message
ContainerStatus: 1 name:s1, 2 state:ContainerState, 3 lastState:ContainerState, 4 ready:b, 5 restartCount:i,
  6 image:s1, 7 imageID:s1, 8 containerID, 9 started:b, 10 allocatedResources{}:Quantity,
  11 resources:ResourceRequirements, 12 volumeMounts[]:VolumeMountStatus, 13 user:ContainerUser,
  14 allocatedResourcesStatus[]:ResourceStatus, 15 stopSignal
ContainerUser: 1 linux:LinuxContainerUser
DaemonEndpoint: 1 Port:i
DownwardAPIProjection: 1 items[]:DownwardAPIVolumeFile
DownwardAPIVolumeFile: 1 path, 2 fieldRef:ObjectFieldSelector, 3 resourceFieldRef:ResourceFieldSelector,
  4 mode:i, 5 user:i
DownwardAPIVolumeSource: 1 items[]:DownwardAPIVolumeFile, 2 defaultMode:i, 3 defaultUser:i
EmptyDirVolumeSource: 1 medium, 2 sizeLimit:Quantity, 3 mode:i
EnvFromSource: 1 prefix, 2 configMapRef:ConfigMapEnvSource, 3 secretRef:SecretEnvSource
EnvVar: 1 name:s1, 2 value, 3 valueFrom:EnvVarSource
EnvVarSource: 1 fieldRef:ObjectFieldSelector, 2 resourceFieldRef:ResourceFieldSelector,
  3 configMapKeyRef:ConfigMapKeySelector, 4 secretKeyRef:SecretKeySelector, 5 fileKeyRef:FileKeySelector
Event: 1 metadata:ObjectMeta, 2 involvedObject:ObjectReference, 3 reason, 4 message, 5 source:EventSource,
  6 firstTimestamp:Time, 7 lastTimestamp:Time, 8 count:i0, 9 type, 10 eventTime:MicroTime,
  11 series:EventSeries, 12 action, 13 related:ObjectReference, 14 reportingComponent:s1,
  15 reportingInstance:s1
EventSeries: 1 count:i0, 2 lastObservedTime:MicroTime
EventSource: 1 component, 2 host
ExecAction: 1 command[]
!FileKeySelector: 1 volumeName, 2 path, 3 key, 4 optional:b
GRPCAction: 1 port:i, 2 service:s1, 3 mode
HTTPGetAction: 1 path, 2 port:IntOrString, 3 host, 4 scheme, 5 httpHeaders[]:HTTPHeader, 6 protocol
HTTPHeader: 1 name, 2 value
HostAlias: 1 ip, 2 hostnames[]
HostIP: 1 ip
HostPathVolumeSource: 1 path:s1, 2 type:s1
ImageVolumeSource: 1 reference, 2 pullPolicy
KeyToPath: 1 key:s1, 2 path:s1, 3 mode:i, 4 user:i
Lifecycle: 1 postStart:LifecycleHandler, 2 preStop:LifecycleHandler, 3 stopSignal
LifecycleHandler: 1 exec:ExecAction, 2 httpGet:HTTPGetAction, 3 tcpSocket:TCPSocketAction,
  4 sleep:SleepAction
LinuxContainerUser: 1 uid:i, 2 gid:i, 3 supplementalGroups[]:i
LoadBalancerIngress: 1 ip, 2 hostname, 3 ipMode, 4 ports[]:PortStatus
LoadBalancerStatus: 1 ingress[]:LoadBalancerIngress
!LocalObjectReference: 1 name
Namespace: 1 metadata:ObjectMeta, 2 spec:NamespaceSpec, 3 status:NamespaceStatus
NamespaceCondition: 1 type, 2 status, 4 lastTransitionTime:Time, 5 reason, 6 message
NamespaceSpec: 1 finalizers[]
NamespaceStatus: 1 phase, 2 conditions[type]:NamespaceCondition
Node: 1 metadata:ObjectMeta, 2 spec:NodeSpec, 3 status:NodeStatus
NodeAddress: 1 type, 2 address
NodeAffinity: 1 requiredDuringSchedulingIgnoredDuringExecution:NodeSelector,
  2 preferredDuringSchedulingIgnoredDuringExecution[]:PreferredSchedulingTerm
NodeCondition: 1 type:s1, 2 status:s1, 3 lastHeartbeatTime:Time, 4 lastTransitionTime:Time, 5 reason,
  6 message
NodeDaemonEndpoints: 1 kubeletEndpoint:DaemonEndpoint
NodeFeatures: 1 supplementalGroupsPolicy:b
NodePodPreemptionPolicy: 1 disableResizePreemption[]
!NodeSelector: 1 nodeSelectorTerms[]:NodeSelectorTerm
NodeSelectorRequirement: 1 key:s1, 2 operator:s1, 3 values[]
!NodeSelectorTerm: 1 matchExpressions[]:NodeSelectorRequirement, 2 matchFields[]:NodeSelectorRequirement
NodeSpec: 1 podCIDR, 2 externalID, 3 providerID, 4 unschedulable:b0, 5 taints[]:Taint,
  6 configSource:NodeConfigSource, 7 podCIDRs[=], 8 podPreemptionPolicy:NodePodPreemptionPolicy
NodeStatus: 1 capacity{}:Quantity, 2 allocatable{}:Quantity, 3 phase, 4 conditions[type]:NodeCondition,
  5 addresses[type]:NodeAddress, 6 daemonEndpoints:NodeDaemonEndpoints, 7 nodeInfo:NodeSystemInfo,
  8 images[]:ContainerImage, 9 volumesInUse[], 10 volumesAttached[]:AttachedVolume,
  11 config:NodeConfigStatus, 12 runtimeHandlers[]:NodeRuntimeHandler, 13 features:NodeFeatures,
  14 declaredFeatures[]
NodeSwapStatus: 1 capacity:i
NodeSystemInfo: 1 machineID:s1, 2 systemUUID:s1, 3 bootID:s1, 4 kernelVersion:s1, 5 osImage:s1,
  6 containerRuntimeVersion:s1, 7 kubeletVersion:s1, 8 kubeProxyVersion:s1, 9 operatingSystem:s1,
  10 architecture:s1, 11 swap:NodeSwapStatus
!ObjectFieldSelector: 1 apiVersion, 2 fieldPath:s1
!ObjectReference: 1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, 7 fieldPath
PersistentVolumeClaimVolumeSource: 1 claimName, 2 readOnly:b0
Pod: 1 metadata:ObjectMeta, 2 spec:PodSpec, 3 status:PodStatus
PodAffinity: 1 requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm,
  2 preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
PodAffinityTerm: 1 labelSelector:LabelSelector, 2 namespaces[], 3 topologyKey,
  4 namespaceSelector:LabelSelector, 5 matchLabelKeys[], 6 mismatchLabelKeys[]
PodAntiAffinity: 1 requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm,
  2 preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
PodCertificateProjection: 1 signerName, 2 keyType, 3 maxExpirationSeconds:i, 4 credentialBundlePath,
  5 keyPath, 6 certificateChainPath, 7 userAnnotations{}, 8 user:i
PodCondition: 1 type:s1, 2 status:s1, 3 lastProbeTime:Time, 4 lastTransitionTime:Time, 5 reason, 6 message,
  7 observedGeneration:i0
PodDNSConfig: 1 nameservers[], 2 searches[], 3 options[]:PodDNSConfigOption
PodDNSConfigOption: 1 name, 2 value
PodExtendedResourceClaimStatus: 1 requestMappings[]:ContainerExtendedResourceRequest, 2 resourceClaimName
PodIP: 1 ip
PodOS: 1 name
PodReadinessGate: 1 conditionType
PodResourceClaim: 1 name, 3 resourceClaimName, 4 resourceClaimTemplateName
PodResourceClaimStatus: 1 name, 2 resourceClaimName
PodSchedulingGate: 1 name
PodSchedulingGroup: 1 podGroupName
PodSecurityContext: 1 seLinuxOptions:SELinuxOptions, 2 runAsUser:i, 3 runAsNonRoot:b,
  4 supplementalGroups[]:i, 5 fsGroup:i, 6 runAsGroup:i, 7 sysctls[]:Sysctl,
  8 windowsOptions:WindowsSecurityContextOptions, 9 fsGroupChangePolicy, 10 seccompProfile:SeccompProfile,
  11 appArmorProfile:AppArmorProfile, 12 supplementalGroupsPolicy, 13 seLinuxChangePolicy
PodSpec: 1 volumes[name!]:Volume, 2 containers[name]:Container, 3 restartPolicy,
  4 terminationGracePeriodSeconds:i, 5 activeDeadlineSeconds:i, 6 dnsPolicy, 7 nodeSelector{!},
  8 serviceAccountName, 9 serviceAccount, 10 nodeName, 11 hostNetwork:b0, 12 hostPID:b0, 13 hostIPC:b0,
  14 securityContext:PodSecurityContext, 15 imagePullSecrets[name]:LocalObjectReference, 16 hostname,
  17 subdomain, 18 affinity:Affinity, 19 schedulerName, 20 initContainers[name]:Container,
  21 automountServiceAccountToken:b, 22 tolerations[]:Toleration, 23 hostAliases[ip]:HostAlias,
  24 priorityClassName, 25 priority:i, 26 dnsConfig:PodDNSConfig, 27 shareProcessNamespace:b,
  28 readinessGates[]:PodReadinessGate, 29 runtimeClassName:s1, 30 enableServiceLinks:b,
  31 preemptionPolicy, 32 overhead{}:Quantity,
  33 topologySpreadConstraints[topologyKey+whenUnsatisfiable]:TopologySpreadConstraint,
  34 ephemeralContainers[name]:EphemeralContainer, 35 setHostnameAsFQDN:b, 36 os:PodOS, 37 hostUsers:b,
  38 schedulingGates[name]:PodSchedulingGate, 39 resourceClaims[name!]:PodResourceClaim,
  40 resources:ResourceRequirements, 41 hostnameOverride, 43 schedulingGroup:PodSchedulingGroup,
  44 evictionResponders[]:EvictionResponder
PodStatus: 1 phase, 2 conditions[type]:PodCondition, 3 message, 4 reason, 5 hostIP, 6 podIP,
  7 startTime:Time, 8 containerStatuses[]:ContainerStatus, 9 qosClass,
  10 initContainerStatuses[]:ContainerStatus, 11 nominatedNodeName, 12 podIPs[ip]:PodIP,
  13 ephemeralContainerStatuses[]:ContainerStatus, 14 resize,
  15 resourceClaimStatuses[]:PodResourceClaimStatus, 16 hostIPs[ip]:HostIP, 17 observedGeneration:i0,
  18 extendedResourceClaimStatus:PodExtendedResourceClaimStatus, 19 allocatedResources{}:Quantity,
  20 resources:ResourceRequirements,
  21 nodeAllocatableResourceClaimStatuses[]:NodeAllocatableResourceClaimStatus,
  22 volumeHealth[]:PodVolumeHealth
PodTemplateSpec: 1 metadata:ObjectMeta, 2 spec:PodSpec
PortStatus: 1 port:i, 2 protocol, 3 error
PreferredSchedulingTerm: 1 weight:i, 2 preference:NodeSelectorTerm
Probe: 1 -:ProbeHandler, 2 initialDelaySeconds:i0, 3 timeoutSeconds:i0, 4 periodSeconds:i0,
  5 successThreshold:i0, 6 failureThreshold:i0, 7 terminationGracePeriodSeconds:i
ProbeHandler: 1 exec:ExecAction, 2 httpGet:HTTPGetAction, 3 tcpSocket:TCPSocketAction, 4 grpc:GRPCAction
ProjectedVolumeSource: 1 sources[]:VolumeProjection, 2 defaultMode:i, 3 defaultUser:i
ResourceClaim: 1 name, 2 request
!ResourceFieldSelector: 1 containerName, 2 resource:s1, 3 divisor:Quantity
ResourceHealth: 1 resourceID, 2 health, 6 message
ResourceRequirements: 1 limits{}:Quantity, 2 requests{}:Quantity, 3 claims[name]:ResourceClaim
ResourceStatus: 1 name, 2 resources[]:ResourceHealth
SELinuxOptions: 1 user, 2 role, 3 type, 4 level
SeccompProfile: 1 type, 2 localhostProfile
Secret: 1 metadata:ObjectMeta, 2 data{}:x, 3 type, 4 stringData{}, 5 immutable:b
SecretEnvSource: 1 -:LocalObjectReference, 2 optional:b
!SecretKeySelector: 1 -:LocalObjectReference, 2 key, 3 optional:b
SecretProjection: 1 -:LocalObjectReference, 2 items[]:KeyToPath, 4 optional:b
SecretVolumeSource: 1 secretName, 2 items[]:KeyToPath, 3 defaultMode:i, 4 optional:b, 5 defaultUser:i
SecurityContext: 1 capabilities:Capabilities, 2 privileged:b, 3 seLinuxOptions:SELinuxOptions,
  4 runAsUser:i, 5 runAsNonRoot:b, 6 readOnlyRootFilesystem:b, 7 allowPrivilegeEscalation:b, 8 runAsGroup:i,
  9 procMount, 10 windowsOptions:WindowsSecurityContextOptions, 11 seccompProfile:SeccompProfile,
  12 appArmorProfile:AppArmorProfile
Service: 1 metadata:ObjectMeta, 2 spec:ServiceSpec, 3 status:ServiceStatus
ServiceAccount: 1 metadata:ObjectMeta, 2 secrets[name]:ObjectReference,
  3 imagePullSecrets[]:LocalObjectReference, 4 automountServiceAccountToken:b
ServiceAccountTokenProjection: 1 audience, 2 expirationSeconds:i, 3 path, 4 user:i
ServicePort: 1 name, 2 protocol, 3 port:i, 4 targetPort:IntOrString, 5 nodePort:i0, 6 appProtocol
ServiceSpec: 1 ports[port+protocol]:ServicePort, 2 selector{!}, 3 clusterIP, 4 type, 5 externalIPs[],
  7 sessionAffinity, 8 loadBalancerIP, 9 loadBalancerSourceRanges[], 10 externalName,
  11 externalTrafficPolicy, 12 healthCheckNodePort:i0, 13 publishNotReadyAddresses:b0,
  14 sessionAffinityConfig:SessionAffinityConfig, 17 ipFamilyPolicy, 18 clusterIPs[], 19 ipFamilies[],
  20 allocateLoadBalancerNodePorts:b, 21 loadBalancerClass, 22 internalTrafficPolicy, 23 trafficDistribution
ServiceStatus: 1 loadBalancer:LoadBalancerStatus, 2 conditions[type]:Condition
SessionAffinityConfig: 1 clientIP:ClientIPConfig
SleepAction: 1 seconds:i
Sysctl: 1 name, 2 value
TCPSocketAction: 1 port:IntOrString, 2 host
Taint: 1 key:s1, 2 value, 3 effect:s1, 4 timeAdded:Time
Toleration: 1 key, 2 operator, 3 value, 4 effect, 5 tolerationSeconds:i
TopologySpreadConstraint: 1 maxSkew:i, 2 topologyKey, 3 whenUnsatisfiable, 4 labelSelector:LabelSelector,
  5 minDomains:i, 6 nodeAffinityPolicy, 7 nodeTaintsPolicy, 8 matchLabelKeys[]
Volume: 1 name:s1, 2 -:VolumeSource
VolumeDevice: 1 name, 2 devicePath
VolumeHealthCondition: 1 status, 2 reason, 3 message
VolumeMount: 1 name:s1, 2 readOnly:b0, 3 mountPath:s1, 4 subPath, 5 mountPropagation, 6 subPathExpr,
  7 recursiveReadOnly, 8 bindMountOptions[]
VolumeMountStatus: 1 name, 2 mountPath, 3 readOnly:b0, 4 recursiveReadOnly, 5 volumeStatus:VolumeStatus
VolumeProjection: 1 secret:SecretProjection, 2 downwardAPI:DownwardAPIProjection,
  3 configMap:ConfigMapProjection, 4 serviceAccountToken:ServiceAccountTokenProjection,
  5 clusterTrustBundle:ClusterTrustBundleProjection, 6 podCertificate:PodCertificateProjection
VolumeSource: 1 hostPath:HostPathVolumeSource, 2 emptyDir:EmptyDirVolumeSource,
  3 gcePersistentDisk:GCEPersistentDiskVolumeSource,
  4 awsElasticBlockStore:AWSElasticBlockStoreVolumeSource, 5 gitRepo:GitRepoVolumeSource,
  6 secret:SecretVolumeSource, 7 nfs:NFSVolumeSource, 8 iscsi:ISCSIVolumeSource,
  9 glusterfs:GlusterfsVolumeSource, 10 persistentVolumeClaim:PersistentVolumeClaimVolumeSource,
  11 rbd:RBDVolumeSource, 12 flexVolume:FlexVolumeSource, 13 cinder:CinderVolumeSource,
  14 cephfs:CephFSVolumeSource, 15 flocker:FlockerVolumeSource, 16 downwardAPI:DownwardAPIVolumeSource,
  17 fc:FCVolumeSource, 18 azureFile:AzureFileVolumeSource, 19 configMap:ConfigMapVolumeSource,
  20 vsphereVolume:VsphereVirtualDiskVolumeSource, 21 quobyte:QuobyteVolumeSource,
  22 azureDisk:AzureDiskVolumeSource, 23 photonPersistentDisk:PhotonPersistentDiskVolumeSource,
  24 portworxVolume:PortworxVolumeSource, 25 scaleIO:ScaleIOVolumeSource,
  26 projected:ProjectedVolumeSource, 27 storageos:StorageOSVolumeSource, 28 csi:CSIVolumeSource,
  29 ephemeral:EphemeralVolumeSource, 30 image:ImageVolumeSource
VolumeStatus: 1 image:ImageVolumeStatus
WeightedPodAffinityTerm: 1 weight:i, 2 podAffinityTerm:PodAffinityTerm
WindowsSecurityContextOptions: 1 gmsaCredentialSpecName, 2 gmsaCredentialSpec, 3 runAsUserName,
  4 hostProcess:b
ClientIPConfig: 1 timeoutSeconds:i
EphemeralVolumeSource: 1 volumeClaimTemplate:PersistentVolumeClaimTemplate
NFSVolumeSource: 1 server, 2 path, 3 readOnly:b0
NodeRuntimeHandler: 1 name, 2 features:NodeRuntimeHandlerFeatures
NodeRuntimeHandlerFeatures: 1 recursiveReadOnlyMounts:b, 2 userNamespaces:b
AttachedVolume: 1 name, 2 devicePath
Endpoints: 1 metadata:ObjectMeta, 2 subsets[]:EndpointSubset
EndpointSubset: 1 addresses[]:EndpointAddress, 2 notReadyAddresses[]:EndpointAddress, 3 ports[]:EndpointPort
EndpointAddress: 1 ip, 2 targetRef:ObjectReference, 3 hostname, 4 nodeName
EndpointPort: 1 name, 2 port:i, 3 protocol, 4 appProtocol
)table"},
{"apps", R"table(
ControllerRevision: 1 metadata:ObjectMeta, 2 data:RawExtension, 3 revision:i
DaemonSet: 1 metadata:ObjectMeta, 2 spec:DaemonSetSpec, 3 status:DaemonSetStatus
DaemonSetSpec: 1 selector:LabelSelector, 2 template:PodTemplateSpec,
  3 updateStrategy:DaemonSetUpdateStrategy, 4 minReadySeconds:i0, 6 revisionHistoryLimit:i
DaemonSetUpdateStrategy: 1 type, 2 rollingUpdate:RollingUpdateDaemonSet
Deployment: 1 metadata:ObjectMeta, 2 spec:DeploymentSpec, 3 status:DeploymentStatus
DeploymentCondition: 1 type, 2 status, 4 reason, 5 message, 6 lastUpdateTime:Time, 7 lastTransitionTime:Time
DeploymentSpec: 1 replicas:i, 2 selector:LabelSelector, 3 template:PodTemplateSpec,
  4 strategy!:DeploymentStrategy, 5 minReadySeconds:i0, 6 revisionHistoryLimit:i, 7 paused:b0,
  9 progressDeadlineSeconds:i
DeploymentStatus: 1 observedGeneration:i0, 2 replicas:i0, 3 updatedReplicas:i0, 4 availableReplicas:i0,
  5 unavailableReplicas:i0, 6 conditions[type]:DeploymentCondition, 7 readyReplicas:i0, 8 collisionCount:i,
  9 terminatingReplicas:i
DeploymentStrategy: 1 type, 2 rollingUpdate:RollingUpdateDeployment
RollingUpdateDaemonSet: 1 maxUnavailable:IntOrString, 2 maxSurge:IntOrString
RollingUpdateDeployment: 1 maxUnavailable:IntOrString, 2 maxSurge:IntOrString
DaemonSetStatus: 1 currentNumberScheduled:i, 2 numberMisscheduled:i, 3 desiredNumberScheduled:i,
  4 numberReady:i, 5 observedGeneration:i0, 6 updatedNumberScheduled:i0, 7 numberAvailable:i0,
  8 numberUnavailable:i0, 9 collisionCount:i, 10 conditions[type]:DaemonSetCondition
DaemonSetCondition: 1 type, 2 status, 3 lastTransitionTime:Time, 4 reason, 5 message
ReplicaSet: 1 metadata:ObjectMeta, 2 spec:ReplicaSetSpec, 3 status:ReplicaSetStatus
ReplicaSetSpec: 1 replicas:i, 2 selector:LabelSelector, 3 template:PodTemplateSpec, 4 minReadySeconds:i0
ReplicaSetStatus: 1 replicas:i, 2 fullyLabeledReplicas:i0, 3 observedGeneration:i0, 4 readyReplicas:i0,
  5 availableReplicas:i0, 6 conditions[type]:ReplicaSetCondition, 7 terminatingReplicas:i
ReplicaSetCondition: 1 type, 2 status, 3 lastTransitionTime:Time, 4 reason, 5 message
)table"},
{"batch", R"table(
CronJob: 1 metadata:ObjectMeta, 2 spec:CronJobSpec, 3 status:CronJobStatus
CronJobSpec: 1 schedule:s1, 2 startingDeadlineSeconds:i, 3 concurrencyPolicy, 4 suspend:b,
  5 jobTemplate:JobTemplateSpec, 6 successfulJobsHistoryLimit:i, 7 failedJobsHistoryLimit:i, 8 timeZone
CronJobStatus: 1 active[]:ObjectReference, 4 lastScheduleTime:Time, 5 lastSuccessfulTime:Time
JobTemplateSpec: 1 metadata:ObjectMeta, 2 spec:JobSpec
Job: 1 metadata:ObjectMeta, 2 spec:JobSpec, 3 status:JobStatus
JobCondition: 1 type, 2 status, 3 lastProbeTime:Time, 4 lastTransitionTime:Time, 5 reason, 6 message
JobSchedulingConfiguration: 1 schedulingPolicy:WorkloadPodGroupSchedulingPolicy,
  2 schedulingConstraints:WorkloadPodGroupSchedulingConstraints,
  3 disruptionMode:WorkloadPodGroupDisruptionMode, 4 resourceClaims[]:WorkloadPodGroupResourceClaim
JobSpec: 1 parallelism:i, 2 completions:i, 3 activeDeadlineSeconds:i, 4 selector:LabelSelector,
  5 manualSelector:b, 6 template:PodTemplateSpec, 7 backoffLimit:i, 8 ttlSecondsAfterFinished:i,
  9 completionMode, 10 suspend:b, 11 podFailurePolicy:PodFailurePolicy, 12 backoffLimitPerIndex:i,
  13 maxFailedIndexes:i, 14 podReplacementPolicy, 15 managedBy, 16 successPolicy:SuccessPolicy,
  17 scheduling:JobSchedulingConfiguration
JobStatus: 1 conditions[type]:JobCondition, 2 startTime:Time, 3 completionTime:Time, 4 active:i0,
  5 succeeded:i0, 6 failed:i0, 7 completedIndexes, 8 uncountedTerminatedPods:UncountedTerminatedPods,
  9 ready:i, 10 failedIndexes, 11 terminating:i
PodFailurePolicy: 1 rules[]:PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement: 1 containerName, 2 operator, 3 values[]:i
PodFailurePolicyOnPodConditionsPattern: 1 type, 2 status
PodFailurePolicyRule: 1 action, 2 onExitCodes:PodFailurePolicyOnExitCodesRequirement,
  3 onPodConditions[]:PodFailurePolicyOnPodConditionsPattern
SuccessPolicy: 1 rules[]:SuccessPolicyRule
SuccessPolicyRule: 1 succeededIndexes, 2 succeededCount:i
UncountedTerminatedPods: 1 succeeded[], 2 failed[]
)table"},
{"coordination", R"table(
Lease: 1 metadata:ObjectMeta, 2 spec:LeaseSpec
LeaseSpec: 1 holderIdentity:s1, 2 leaseDurationSeconds:i, 3 acquireTime:MicroTime, 4 renewTime:MicroTime,
  5 leaseTransitions:i, 6 strategy:s1, 7 preferredHolder:s1
)table"},
{"rbac", R"table(
AggregationRule: 1 clusterRoleSelectors[]:LabelSelector
ClusterRole: 1 metadata:ObjectMeta, 2 rules[]:PolicyRule, 3 aggregationRule:AggregationRule
ClusterRoleBinding: 1 metadata:ObjectMeta, 2 subjects[]:Subject, 3 roleRef:RoleRef
PolicyRule: 1 verbs[], 2 apiGroups[], 3 resources[], 4 resourceNames[], 5 nonResourceURLs[]
Role: 1 metadata:ObjectMeta, 2 rules[]:PolicyRule
RoleBinding: 1 metadata:ObjectMeta, 2 subjects[]:Subject, 3 roleRef:RoleRef
!RoleRef: 1 apiGroup:s1, 2 kind:s1, 3 name:s1
!Subject: 1 kind:s1, 2 apiGroup, 3 name:s1, 4 namespace
)table"},
{"policy", R"table(
Eviction: 1 metadata:ObjectMeta, 2 deleteOptions:DeleteOptions
PodDisruptionBudget: 1 metadata:ObjectMeta, 2 spec:PodDisruptionBudgetSpec,
  3 status:PodDisruptionBudgetStatus
PodDisruptionBudgetSpec: 1 minAvailable:IntOrString, 2 selector:LabelSelector, 3 maxUnavailable:IntOrString,
  4 unhealthyPodEvictionPolicy
PodDisruptionBudgetStatus: 1 observedGeneration:i0, 2 disruptedPods{}:Time, 3 disruptionsAllowed:i,
  4 currentHealthy:i, 5 desiredHealthy:i, 6 expectedPods:i, 7 conditions[type]:Condition
)table"},
{"scheduling", R"table(
PriorityClass: 1 metadata:ObjectMeta, 2 value:i, 3 globalDefault:b0, 4 description, 5 preemptionPolicy
)table"},
{"authentication", R"table(
AttestationValue: 1 items[]
BoundObjectReference: 1 kind, 2 apiVersion, 3 name, 4 uid
ExtraValue: 1 items[]
SelfSubjectReview: 1 metadata:ObjectMeta, 2 status:SelfSubjectReviewStatus
SelfSubjectReviewStatus: 1 userInfo:UserInfo
TokenRequest: 1 metadata:ObjectMeta, 2 spec:TokenRequestSpec, 3 status:TokenRequestStatus
TokenRequestSpec: 1 audiences[], 3 boundObjectRef:BoundObjectReference, 4 expirationSeconds:i,
  5 attestations{}:AttestationValue
TokenRequestStatus: 1 token:s1, 2 expirationTimestamp:Time
TokenReview: 1 metadata:ObjectMeta, 2 spec:TokenReviewSpec, 3 status:TokenReviewStatus
TokenReviewSpec: 1 token, 2 audiences[]
TokenReviewStatus: 1 authenticated:b0, 2 user:UserInfo, 3 error, 4 audiences[]
UserInfo: 1 username, 2 uid, 3 groups[], 4 extra{}:ExtraValue
)table"},
{"authorization", R"table(
ExtraValue: 1 items[]
FieldSelectorAttributes: 1 rawSelector, 2 requirements[]:FieldSelectorRequirement
LabelSelectorAttributes: 1 rawSelector, 2 requirements[]:LabelSelectorRequirement
NonResourceAttributes: 1 path, 2 verb
NonResourceRule: 1 verbs[], 2 nonResourceURLs[]
ResourceAttributes: 1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name,
  8 fieldSelector:FieldSelectorAttributes, 9 labelSelector:LabelSelectorAttributes
ResourceRule: 1 verbs[], 2 apiGroups[], 3 resources[], 4 resourceNames[]
SelfSubjectAccessReview: 1 metadata:ObjectMeta, 2 spec:SelfSubjectAccessReviewSpec,
  3 status:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec: 1 resourceAttributes:ResourceAttributes,
  2 nonResourceAttributes:NonResourceAttributes
SelfSubjectRulesReview: 1 metadata:ObjectMeta, 2 spec:SelfSubjectRulesReviewSpec,
  3 status:SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec: 1 namespace
SubjectAccessReview: 1 metadata:ObjectMeta, 2 spec:SubjectAccessReviewSpec,
  3 status:SubjectAccessReviewStatus
SubjectAccessReviewSpec: 1 resourceAttributes:ResourceAttributes,
  2 nonResourceAttributes:NonResourceAttributes, 3 user, 4 groups[], 5 extra{}:ExtraValue, 6 uid
SubjectAccessReviewStatus: 1 allowed:b, 2 reason, 3 evaluationError, 4 denied:b0
SubjectRulesReviewStatus: 1 resourceRules[]:ResourceRule, 2 nonResourceRules[]:NonResourceRule,
  3 incomplete:b, 4 evaluationError
)table"},
{"events", R"table(
Event: 1 metadata:ObjectMeta, 2 eventTime:MicroTime, 3 series:EventSeries, 4 reportingController,
  5 reportingInstance:s1, 6 action, 7 reason, 8 regarding:ObjectReference, 9 related:ObjectReference,
  10 note, 11 type, 12 deprecatedSource:EventSource, 13 deprecatedFirstTimestamp:Time,
  14 deprecatedLastTimestamp:Time, 15 deprecatedCount:i0
EventSeries: 1 count:i0, 2 lastObservedTime:MicroTime
)table"},
{"node", R"table(
Overhead: 1 podFixed{}:Quantity
RuntimeClass: 1 metadata:ObjectMeta, 2 handler:s1, 3 overhead:Overhead, 4 scheduling:Scheduling
Scheduling: 1 nodeSelector{!}, 2 tolerations[]:Toleration
)table"},
  };
  return tables;
}
// clang-format on

}  // namespace gpuop::cluster::api
